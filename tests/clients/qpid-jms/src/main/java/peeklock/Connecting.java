package peeklock;

import jakarta.jms.JMSContext;
import org.apache.qpid.jms.JmsConnectionFactory;

/** The ways in: SASL PLAIN and ANONYMOUS, TLS, WebSocket. */
final class Connecting {
    private static final String WEB_SOCKET = "/$servicebus/websocket";

    private Connecting() {
    }

    static void add(Report report) {
        report.add("connect-emulator-string", () -> {
            converse(Client.connect());
            converse(new JmsConnectionFactory(Client.address()).createContext()); // SASL ANONYMOUS
        });
        report.add("connect-tls", () -> converse(
            Client.connect("amqps://localhost:" + Broker.AMQP_PORT, JMSContext.AUTO_ACKNOWLEDGE)));
        report.skip("connect-tls-emulator-flag", "JMS takes no connection string");
        report.add("connect-websocket", () -> {
            String host = "localhost:" + Broker.AMQP_PORT + WEB_SOCKET;
            converse(Client.connect("amqpws://" + host, JMSContext.AUTO_ACKNOWLEDGE));
            converse(Client.connect("amqpwss://" + host, JMSContext.AUTO_ACKNOWLEDGE));
        });
    }

    private static void converse(JMSContext opened) throws Exception {
        String queue = Broker.queue();
        try (JMSContext context = opened) {
            context.createProducer().send(context.createQueue(queue), "hello");
            Expect.equal("hello", Client.receive(context.createConsumer(context.createQueue(queue)))
                .getBody(String.class));
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }
}
