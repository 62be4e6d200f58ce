package peeklock;

import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.Message;
import java.util.List;

/** Transacted sessions: what was received and sent since the last commit, together or not at all. */
final class Transactions {
    private Transactions() {
    }

    static void add(Report report) {
        report.add("transaction-commit", Transactions::commit);
        report.add("transaction-rollback", Transactions::rollback);
        report.add("transaction-rollback-then-settle", Transactions::rollbackThenSettle);
        report.skip("transaction-other-connection", "a JMS transaction is its session's");
    }

    /** Twice, since a session goes on with a new transaction. */
    private static void commit() throws Exception {
        String orders = Broker.queue();
        String invoices = Broker.queue();
        Client.send(orders, "order 1", "order 2");
        try (JMSContext context = Client.connect(JMSContext.SESSION_TRANSACTED)) {
            JMSConsumer consumer = context.createConsumer(context.createQueue(orders));
            for (int i = 1; i <= 2; i++) {
                Expect.equal(List.of("order " + i), Client.receive(consumer, 1));
                context.createProducer().send(context.createQueue(invoices), "invoice " + i);
                Expect.equal(i - 1, Broker.activeMessages(invoices));
                context.commit();
                Expect.equal(i, Broker.activeMessages(invoices));
                Expect.equal(2 - i, Broker.activeMessages(orders));
            }
        }
        Expect.equal(List.of("invoice 1", "invoice 2"), Client.rest(invoices));
    }

    /** The client gives the same deliveries again after a rollback, and settles them in the next one. */
    private static void rollbackThenSettle() throws Exception {
        String queue = Broker.queue();
        Client.send(queue, "a", "b");
        try (JMSContext context = Client.connect(JMSContext.SESSION_TRANSACTED)) {
            JMSConsumer consumer = context.createConsumer(context.createQueue(queue));
            for (int round = 0; round < 3; round++) {
                Expect.equal(List.of("a", "b"), Client.receive(consumer, 2));
                Expect.equal(2, Broker.activeMessages(queue));
                if (round < 2) {
                    context.rollback();
                } else {
                    context.commit();
                }
            }
            Expect.equal(0, Broker.activeMessages(queue));
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }

    private static void rollback() throws Exception {
        String orders = Broker.queue();
        String invoices = Broker.queue();
        Client.send(orders, "order");
        try (JMSContext context = Client.connect(JMSContext.SESSION_TRANSACTED)) {
            JMSConsumer consumer = context.createConsumer(context.createQueue(orders));
            Expect.equal(List.of("order"), Client.receive(consumer, 1));
            context.createProducer().send(context.createQueue(invoices), "invoice");
            context.rollback();
            Expect.equal(0, Broker.activeMessages(invoices));
            Message again = Client.receive(consumer);
            Expect.equal("order", again.getBody(String.class));
            Expect.equal(true, again.getJMSRedelivered());
            context.commit();
        }
        Expect.equal(0, Broker.activeMessages(orders));
    }
}
