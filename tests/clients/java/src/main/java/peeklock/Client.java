package peeklock;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** The stock client as the scenarios use it. */
final class Client {
    /** Long enough for what must come. */
    static final Duration WAIT = Duration.ofSeconds(10);
    /** How long to look for what must not come. */
    static final Duration NOTHING = Duration.ofMillis(500);

    private Client() {
    }

    /** A connection of its own: everything built from one builder shares it. */
    static ServiceBusClientBuilder builder() {
        return new ServiceBusClientBuilder()
            .connectionString(Broker.variable("PEEKLOCK_CONNECTION_STRING"))
            .retryOptions(patience(WAIT));
    }

    /** No retries, so that a refusal shows at once. */
    static AmqpRetryOptions patience(Duration tryTimeout) {
        return new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(tryTimeout);
    }

    static ServiceBusSenderClient sender(String queue) {
        return builder().sender().queueName(queue).buildClient();
    }

    static ServiceBusReceiverClient receiver(String queue) {
        return builder().receiver().queueName(queue).buildClient();
    }

    static ServiceBusReceiverClient deadLetters(String queue) {
        return builder().receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient();
    }

    static void send(String queue, String... texts) {
        try (ServiceBusSenderClient sender = sender(queue)) {
            sender.sendMessages(messages(texts));
        }
    }

    static List<ServiceBusMessage> messages(String... texts) {
        return Stream.of(texts).map(ServiceBusMessage::new).toList();
    }

    static ServiceBusMessage inSession(String sessionId, String text) {
        return new ServiceBusMessage(text).setSessionId(sessionId);
    }

    /** Exactly so many messages, however many calls it takes. */
    static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> received = new ArrayList<>();
        while (received.size() < count) {
            int before = received.size();
            receiver.receiveMessages(count - before, WAIT).forEach(received::add);
            Expect.that(received.size() > before, "only " + before + " of " + count + " came");
        }
        return received;
    }

    static ServiceBusReceivedMessage receiveOne(ServiceBusReceiverClient receiver) {
        return receive(receiver, 1).get(0);
    }

    static void nothingComes(ServiceBusReceiverClient receiver) {
        List<ServiceBusReceivedMessage> received =
            receiver.receiveMessages(1, NOTHING).stream().toList();
        Expect.equal(List.of(), bodies(received));
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> texts = new ArrayList<>();
        messages.forEach(message -> texts.add(message.getBody().toString()));
        return texts;
    }

    static void refused(ServiceBusFailureReason reason, Report.Scenario action) {
        ServiceBusException error = Expect.failure(ServiceBusException.class, action);
        if (error.getReason() != reason) {
            throw new AssertionError("expected " + reason + " but got " + error.getReason(), error);
        }
    }
}
