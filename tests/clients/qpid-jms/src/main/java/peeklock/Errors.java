package peeklock;

import jakarta.jms.BytesMessage;
import jakarta.jms.InvalidDestinationRuntimeException;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.JMSSecurityRuntimeException;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Refusals, and the exceptions Qpid makes of them. */
final class Errors {
    private Errors() {
    }

    static void add(Report report) {
        report.add("error-not-found", Errors::notFound);
        report.skip("error-not-found-operations", "JMS only sends and receives, see error-not-found");
        report.add("error-unauthorized", Errors::unauthorized);
        report.add("strict-claims", Errors::claims);
        report.add("error-quota", Errors::quota);
        report.add("error-too-large", Errors::tooLarge);
    }

    /** And what the broker does not offer is refused in words, instead of half done. */
    private static void notFound() throws Exception {
        String queue = Broker.queue();
        Client.send(queue, "x");
        try (JMSContext context = Client.connect()) {
            Expect.failure(InvalidDestinationRuntimeException.class,
                () -> context.createConsumer(context.createQueue("nowhere")).receive(1));
            Expect.failure(InvalidDestinationRuntimeException.class,
                () -> context.createProducer().send(context.createQueue("nowhere"), "x"));
            JMSRuntimeException error = Expect.failure(JMSRuntimeException.class,
                () -> context.createConsumer(context.createQueue(queue), "size > 5").receive(1));
            Expect.that(error.getMessage().contains("selector"), error.getMessage());
            error = Expect.failure(JMSRuntimeException.class, context::createTemporaryQueue);
            Expect.that(error.getMessage().contains("Dynamic nodes"), error.getMessage());
        }
        Expect.equal(List.of("x"), Client.rest(queue));
    }

    private static void unauthorized() {
        Expect.failure(JMSSecurityRuntimeException.class,
            () -> new JmsConnectionFactory(Client.address())
                .createContext("RootManageSharedAccessKey", "wrong").start());
    }

    private static JMSContext strictly(String claim) {
        Map<String, String> parts =
            Broker.parts(Broker.variable("PEEKLOCK_STRICT_" + claim + "_CONNECTION_STRING"));
        return new JmsConnectionFactory(parts.get("Endpoint").replace("sb://", "amqp://"))
            .createContext(parts.get("SharedAccessKeyName"), parts.get("SharedAccessKey"));
    }

    private static void claims() throws Exception {
        String queue = Broker.variable("PEEKLOCK_STRICT_QUEUE");
        try (JMSContext context = strictly("SEND")) {
            context.createProducer().send(context.createQueue(queue), "sent");
            Expect.failure(JMSSecurityRuntimeException.class,
                () -> context.createConsumer(context.createQueue(queue)).receive(1));
        }
        try (JMSContext context = strictly("LISTEN")) {
            Expect.failure(JMSSecurityRuntimeException.class,
                () -> context.createProducer().send(context.createQueue(queue), "x"));
            Expect.equal(List.of("sent"),
                Client.receive(context.createConsumer(context.createQueue(queue)), 1));
        }
        try (JMSContext context = strictly("MANAGE")) {
            context.createProducer().send(context.createQueue(queue), "managed");
            Expect.equal(List.of("managed"),
                Client.receive(context.createConsumer(context.createQueue(queue)), 1));
        }
    }

    private static void quota() throws Exception {
        String queue = Broker.queue("MaxSizeInMegabytes", "1");
        byte[] block = new byte[200_000];
        try (JMSContext context = Client.connect()) {
            JMSRuntimeException error = Expect.failure(JMSRuntimeException.class, () -> {
                for (int i = 0; i < 10; i++) {
                    context.createProducer().send(context.createQueue(queue), block);
                }
            });
            Expect.that(error.getMessage().contains("resource-limit-exceeded"), error.getMessage());
            Client.receive(context.createConsumer(context.createQueue(queue)));
            context.createProducer().send(context.createQueue(queue), block);
        }
    }

    private static void tooLarge() throws Exception {
        String queue = Broker.queue("MaxMessageSizeInKilobytes", "1024");
        try (JMSContext context = Client.connect()) {
            BytesMessage large = context.createBytesMessage();
            large.writeBytes(new byte[2_000_000]);
            JMSRuntimeException error = Expect.failure(JMSRuntimeException.class,
                () -> context.createProducer().send(context.createQueue(queue), large));
            Expect.that(error.getMessage().contains("message-size-exceeded"), error.getMessage());
            context.createProducer().send(context.createQueue(queue), "small");
        }
        Expect.equal(List.of("small"), Client.rest(queue));
    }
}
