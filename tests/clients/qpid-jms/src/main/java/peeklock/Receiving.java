package peeklock;

import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** Getting messages: on demand, ahead of demand, by listeners. */
final class Receiving {
    private Receiving() {
    }

    static void add(Report report) {
        report.add("receive-no-prefetch", Receiving::onDemand);
        report.add("receive-prefetch", Receiving::ahead);
        report.add("processor", Receiving::listeners);
    }

    /** Two consumers take turns; looking for nothing leaves nothing behind. */
    private static void onDemand() throws Exception {
        String queue = Broker.queue();
        try (JMSContext context = Client.connect(); JMSContext other = Client.connect()) {
            JMSConsumer first = context.createConsumer(context.createQueue(queue));
            JMSConsumer second = other.createConsumer(other.createQueue(queue));
            Client.nothingComes(first);
            Expect.equal(null, first.receiveNoWait());
            Client.send(queue, "a", "b", "c");
            Expect.equal(List.of("a"), Client.receive(first, 1));
            Expect.equal(List.of("b"), Client.receive(second, 1));
            Expect.equal("c", first.receiveNoWait().getBody(String.class));
        }
    }

    /** The default takes a thousand ahead; what was not looked at stays locked until its lock ends. */
    private static void ahead() throws Exception {
        String queue = Broker.queue();
        Client.send(queue, "a", "b", "c");
        try (JMSContext context = Client.connect(Client.address(), JMSContext.AUTO_ACKNOWLEDGE)) {
            Expect.equal(List.of("a"), Client.receive(context.createConsumer(context.createQueue(queue)), 1));
        }
        Client.nothingComes(queue);
        Broker.advance(61);
        try (JMSContext context = Client.connect()) {
            Message second = Client.receive(context.createConsumer(context.createQueue(queue)));
            Expect.equal("b", second.getBody(String.class));
        }
        Expect.equal(List.of("c"), Client.rest(queue));
    }

    /** Two sessions with a listener each; one that throws gives its message back, uncounted. */
    private static void listeners() throws Exception {
        String queue = Broker.queue();
        Set<String> done = ConcurrentHashMap.newKeySet();
        AtomicInteger failures = new AtomicInteger();
        List<JMSContext> contexts = new ArrayList<>();
        try (JMSContext connection = Client.connect(Client.address() + "?jms.prefetchPolicy.all=1",
            JMSContext.AUTO_ACKNOWLEDGE)) {
            for (int i = 0; i < 2; i++) {
                JMSContext context = connection.createContext(JMSContext.AUTO_ACKNOWLEDGE);
                contexts.add(context);
                context.createConsumer(context.createQueue(queue)).setMessageListener(message -> {
                    try {
                        String text = message.getBody(String.class);
                        if (text.equals("m3") && failures.incrementAndGet() == 1) {
                            throw new IllegalStateException("not the first time");
                        }
                        done.add(text + " at " + Client.deliveryCount(message));
                    } catch (JMSException error) {
                        throw new IllegalStateException(error);
                    }
                });
            }
            Client.send(queue, "m1", "m2", "m3", "m4", "m5");
            Set<String> expected = Set.of("m1 at 1", "m2 at 1", "m3 at 1", "m4 at 1", "m5 at 1");
            Expect.soon(10, "listening", () -> done.equals(expected));
            Expect.soon(10, "acknowledging", () -> Broker.activeMessages(queue) == 0);
            contexts.forEach(JMSContext::close);
        }
    }
}
