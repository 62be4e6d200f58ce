package peeklock;

import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.Message;
import jakarta.jms.QueueBrowser;
import java.util.Collections;
import java.util.List;

/** Acknowledging, in the ways JMS and Qpid's own extension know. */
final class Settling {
    private Settling() {
    }

    static void add(Report report) {
        report.add("complete", Settling::complete);
        report.add("abandon-with-properties", Settling::abandon);
        report.skip("defer-and-fetch", "JMS cannot ask for a message by its number");
        report.add("dead-letter-and-read-back", Settling::deadLetter);
        report.add("receive-and-delete", Settling::receiveAndDelete);
        report.add("peek", Settling::browse);
    }

    static void addLocks(Report report) {
        report.add("lock-lost", Settling::lockLost);
    }

    /** CLIENT_ACKNOWLEDGE: one call for all that was received. */
    private static void complete() throws Exception {
        String queue = Broker.queue();
        Client.send(queue, "a", "b", "c");
        try (JMSContext context = Client.connect(JMSContext.CLIENT_ACKNOWLEDGE)) {
            JMSConsumer consumer = context.createConsumer(context.createQueue(queue));
            Expect.equal(List.of("a", "b"), Client.receive(consumer, 2));
            Expect.equal(3, Broker.activeMessages(queue));
            context.acknowledge();
            Expect.soon(5, "acknowledging", () -> Broker.activeMessages(queue) == 1);
            Expect.equal(List.of("c"), Client.receive(consumer, 1));
        }
        Expect.equal(List.of("c"), Client.rest(queue));
    }

    /** JMS has no properties to give along; what is left is that it comes again, and counts. */
    private static void abandon() throws Exception {
        String queue = Broker.queue();
        Client.send(queue, "again");
        try (JMSContext context = Client.connect(Client.INDIVIDUAL_ACKNOWLEDGE)) {
            JMSConsumer consumer = context.createConsumer(context.createQueue(queue));
            int[][] steps = {{Client.MODIFIED_FAILED, 1}, {Client.RELEASED, 2}, {Client.MODIFIED_FAILED, 2}};
            for (int[] step : steps) {
                Message message = Client.receive(consumer);
                Expect.equal(step[1], Client.deliveryCount(message));
                Expect.equal(step[1] > 1, message.getJMSRedelivered());
                message.setIntProperty(Client.ACKNOWLEDGE_AS, step[0]);
                message.acknowledge();
            }
            Expect.equal(3, Client.deliveryCount(Client.receive(consumer)));
        }
    }

    /** By rejecting, and by failing as often as the queue allows. */
    private static void deadLetter() throws Exception {
        String queue = Broker.queue("MaxDeliveryCount", "2");
        Client.send(queue, "rejected", "failing");
        try (JMSContext context = Client.connect(Client.INDIVIDUAL_ACKNOWLEDGE)) {
            JMSConsumer consumer = context.createConsumer(context.createQueue(queue));
            Message rejected = Client.receive(consumer);
            rejected.setIntProperty(Client.ACKNOWLEDGE_AS, Client.REJECTED);
            rejected.acknowledge();
            for (int i = 0; i < 2; i++) {
                Message failing = Client.receive(consumer);
                failing.setIntProperty(Client.ACKNOWLEDGE_AS, Client.MODIFIED_FAILED);
                failing.acknowledge();
            }
            Client.nothingComes(consumer);
            JMSConsumer dead = context.createConsumer(context.createQueue(queue + "/$DeadLetterQueue"));
            Expect.equal("rejected", Client.receive(dead).getBody(String.class));
            Message failed = Client.receive(dead);
            Expect.equal("failing", failed.getBody(String.class));
            Expect.equal("MaxDeliveryCountExceeded", failed.getStringProperty("DeadLetterReason"));
            failed.acknowledge();
        }
        Broker.advance(61); // it was received and never acknowledged
        Expect.equal(List.of("rejected"), Client.rest(queue + "/$DeadLetterQueue"));
    }

    private static void receiveAndDelete() throws Exception {
        String queue = Broker.queue();
        Client.send(queue, "a", "b");
        String uri = Client.address() + "?jms.prefetchPolicy.all=0&jms.presettlePolicy.presettleConsumers=true";
        try (JMSContext context = Client.connect(uri, JMSContext.CLIENT_ACKNOWLEDGE)) {
            Expect.equal(List.of("a"), Client.receive(context.createConsumer(context.createQueue(queue)), 1));
            Expect.equal(1, Broker.activeMessages(queue));
        }
        Expect.equal(List.of("b"), Client.rest(queue));
    }

    /** A browser shows what is there and leaves it there. */
    private static void browse() throws Exception {
        String queue = Broker.queue();
        Client.send(queue, "a", "b", "c");
        for (int prefetch : new int[] {0, 2, 1000}) {
            String uri = Client.address() + "?jms.prefetchPolicy.all=" + prefetch;
            try (JMSContext context = Client.connect(uri, JMSContext.AUTO_ACKNOWLEDGE);
                QueueBrowser browser = context.createBrowser(context.createQueue(queue))) {
                List<String> seen = Collections.list(browser.getEnumeration()).stream()
                    .map(message -> text((Message) message)).toList();
                Expect.equal(List.of("a", "b", "c"), seen);
            }
        }
        Expect.equal(3, Broker.activeMessages(queue));
        Expect.equal(List.of("a", "b", "c"), Client.rest(queue));
    }

    private static String text(Message message) {
        try {
            return message.getBody(String.class);
        } catch (jakarta.jms.JMSException error) {
            throw new IllegalStateException(error);
        }
    }

    /** JMS is not told that it acknowledged too late; the message is somebody else's all the same. */
    private static void lockLost() throws Exception {
        String queue = Broker.queue("LockDuration", "PT30S");
        Client.send(queue, "slow");
        try (JMSContext context = Client.connect(JMSContext.CLIENT_ACKNOWLEDGE);
            JMSContext other = Client.connect(JMSContext.CLIENT_ACKNOWLEDGE)) {
            Client.receive(context.createConsumer(context.createQueue(queue)));
            Broker.advance(31);
            Message again = Client.receive(other.createConsumer(other.createQueue(queue)));
            Expect.equal(2, Client.deliveryCount(again));
            context.acknowledge();
            Expect.equal(1, Broker.activeMessages(queue));
            other.acknowledge();
            Expect.soon(5, "acknowledging", () -> Broker.activeMessages(queue) == 0);
        }
    }
}
