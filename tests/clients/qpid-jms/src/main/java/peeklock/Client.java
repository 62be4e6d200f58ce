package peeklock;

import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;

/** The JMS client as the scenarios use it: a key's name and the key are user and password. */
final class Client {
    /** Long enough for what must come. */
    static final long WAIT_MS = 10_000;
    /** How long to look for what must not come. */
    static final long NOTHING_MS = 400;
    /** Qpid's own session mode: acknowledging a message means that one alone. */
    static final int INDIVIDUAL_ACKNOWLEDGE = 101;
    /** Qpid's own message property: what acknowledging is to say, and what it can. */
    static final String ACKNOWLEDGE_AS = "JMS_AMQP_ACK_TYPE";
    static final int REJECTED = 2;
    static final int RELEASED = 3;
    static final int MODIFIED_FAILED = 4;

    private static final Map<String, String> PARTS =
        Broker.parts(Broker.variable("PEEKLOCK_CONNECTION_STRING"));

    private Client() {
    }

    static String address() {
        return "amqp://" + Broker.HOST + ":" + Broker.AMQP_PORT;
    }

    static JMSContext connect(String uri, int mode) {
        return new JmsConnectionFactory(uri).createContext(
            PARTS.get("SharedAccessKeyName"), PARTS.get("SharedAccessKey"), mode);
    }

    /** A connection without prefetch: nothing is locked that was not asked for. */
    static JMSContext connect(int mode) {
        return connect(address() + "?jms.prefetchPolicy.all=0", mode);
    }

    static JMSContext connect() {
        return connect(JMSContext.AUTO_ACKNOWLEDGE);
    }

    static void send(String queue, String... texts) {
        try (JMSContext context = connect()) {
            for (String text : texts) {
                context.createProducer().send(context.createQueue(queue), text);
            }
        }
    }

    static Message receive(JMSConsumer consumer) {
        Message message = consumer.receive(WAIT_MS);
        Expect.that(message != null, "no message came");
        return message;
    }

    static List<String> receive(JMSConsumer consumer, int count) throws JMSException {
        List<String> texts = new ArrayList<>();
        while (texts.size() < count) {
            texts.add(receive(consumer).getBody(String.class));
        }
        return texts;
    }

    static void nothingComes(JMSConsumer consumer) {
        Expect.equal(null, consumer.receive(NOTHING_MS));
    }

    static void nothingComes(String queue) {
        try (JMSContext context = connect()) {
            nothingComes(context.createConsumer(context.createQueue(queue)));
        }
    }

    /** What is left in a queue, taken out of it. */
    static List<String> rest(String queue) throws JMSException {
        List<String> texts = new ArrayList<>();
        try (JMSContext context = connect()) {
            JMSConsumer consumer = context.createConsumer(context.createQueue(queue));
            for (Message message; (message = consumer.receive(NOTHING_MS)) != null; ) {
                texts.add(message.getBody(String.class));
            }
        }
        return texts;
    }

    static int deliveryCount(Message message) throws JMSException {
        return message.getIntProperty("JMSXDeliveryCount");
    }
}
