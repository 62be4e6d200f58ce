package peeklock;

import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import java.util.List;

/** A broker that goes away, and a client that does. */
final class Endings {
    private Endings() {
    }

    static void add(Report report) {
        report.add("reconnect-after-restart", Endings::reconnect);
        report.add("clean-close", Endings::cleanClose);
    }

    /** Qpid's failover does it all by itself. */
    private static void reconnect() throws Exception {
        String queue = Broker.queue();
        String uri = "failover:(" + Client.address() + ")?failover.reconnectDelay=100";
        try (JMSContext context = Client.connect(uri, JMSContext.AUTO_ACKNOWLEDGE)) {
            JMSConsumer consumer = context.createConsumer(context.createQueue(queue));
            context.createProducer().send(context.createQueue(queue), "before");
            Expect.equal(List.of("before"), Client.receive(consumer, 1));
            consumer.close();
            context.createProducer().send(context.createQueue(queue), "kept");
            consumer = context.createConsumer(context.createQueue(queue));
            Broker.restart();
            context.createProducer().send(context.createQueue(queue), "after");
            Expect.equal(List.of("kept", "after"), Client.receive(consumer, 2));
        }
    }

    private static void cleanClose() throws Exception {
        Expect.soon(10, "the end of earlier connections", () -> Broker.connections() == 0);
        String queue = Broker.queue();
        Client.send(queue, "held", "untouched");
        long started = System.nanoTime();
        try (JMSContext context = Client.connect(Client.address(), JMSContext.CLIENT_ACKNOWLEDGE)) {
            Client.receive(context.createConsumer(context.createQueue(queue)));
        }
        long elapsedMs = (System.nanoTime() - started) / 1_000_000;
        Expect.that(elapsedMs < 5_000, "closing took " + elapsedMs + " ms");
        Expect.soon(5, "the end of its connection", () -> Broker.connections() == 0);
        Broker.advance(61); // until then both are locked
        Expect.equal(List.of("held", "untouched"), Client.rest(queue));
    }
}
