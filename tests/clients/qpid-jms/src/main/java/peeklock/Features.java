package peeklock;

import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.Message;
import java.util.List;

/** What entities do by themselves. */
final class Features {
    private Features() {
    }

    static void add(Report report) {
        report.add("time-to-live", Features::timeToLive);
        report.add("forwarding", Features::forwarding);
    }

    private static void timeToLive() throws Exception {
        String queue = Broker.queue("DeadLetteringOnMessageExpiration", "true");
        try (JMSContext context = Client.connect()) {
            context.createProducer().setTimeToLive(30_000).send(context.createQueue(queue), "short");
            context.createProducer().send(context.createQueue(queue), "long");
            Broker.advance(31);
            JMSConsumer consumer = context.createConsumer(context.createQueue(queue));
            Expect.equal(List.of("long"), Client.receive(consumer, 1));
            Client.nothingComes(consumer);
            Message dead = Client.receive(
                context.createConsumer(context.createQueue(queue + "/$DeadLetterQueue")));
            Expect.equal("short", dead.getBody(String.class));
            Expect.equal("TTLExpiredException", dead.getStringProperty("DeadLetterReason"));
        }
    }

    private static void forwarding() throws Exception {
        String destination = Broker.queue();
        Client.send(Broker.queue("ForwardTo", destination), "forwarded");
        Expect.equal(List.of("forwarded"), Client.rest(destination));
    }
}
