package peeklock;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.util.List;

/** Refusals, and the reasons the SDK makes of them. */
final class Errors {
    private Errors() {
    }

    static void add(Report report) {
        report.add("error-not-found", Errors::notFound);
        report.add("error-not-found-operations", Missing::operations);
        report.add("error-unauthorized", Errors::unauthorized);
        report.add("strict-claims", Claims::claims);
        report.add("error-quota", Errors::quota);
        report.add("error-too-large", Errors::tooLarge);
        report.add("error-session-held", Errors::sessionHeld);
    }

    private static void notFound() {
        String nowhere = Broker.name("nowhere");
        try (ServiceBusSenderClient sender = Client.sender(nowhere);
            ServiceBusReceiverClient receiver = Client.receiver(nowhere)) {
            Client.refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND,
                () -> sender.sendMessage(new ServiceBusMessage("x")));
            Throwable error = Expect.failure(RuntimeException.class,
                () -> receiver.receiveMessages(1, Client.WAIT).stream().toList());
            while (error.getCause() != null && !(error instanceof AmqpException)) {
                error = error.getCause();
            }
            Expect.equal(AmqpErrorCondition.NOT_FOUND, ((AmqpException) error).getErrorCondition());
            Client.refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, receiver::peekMessage);
        }
    }

    private static void unauthorized() {
        String queue = Broker.queue();
        String wrong = Broker.variable("PEEKLOCK_CONNECTION_STRING")
            .replaceFirst("SharedAccessKey=[^;]*", "SharedAccessKey=wrong");
        try (ServiceBusSenderClient sender = new ServiceBusClientBuilder().connectionString(wrong)
            .retryOptions(Client.patience(Client.WAIT)).sender().queueName(queue).buildClient()) {
            Client.refused(ServiceBusFailureReason.UNAUTHORIZED,
                () -> sender.sendMessage(new ServiceBusMessage("x")));
        }
    }

    /** A full queue refuses until there is room again. */
    private static void quota() {
        String queue = Broker.queue("MaxSizeInMegabytes", "1");
        byte[] block = new byte[200_000];
        try (ServiceBusSenderClient sender = Client.sender(queue);
            ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            Client.refused(ServiceBusFailureReason.QUOTA_EXCEEDED, () -> {
                for (int i = 0; i < 10; i++) {
                    sender.sendMessage(new ServiceBusMessage(block));
                }
            });
            List<ServiceBusReceivedMessage> some = Client.receive(receiver, 3);
            some.forEach(receiver::complete);
            sender.sendMessage(new ServiceBusMessage(block));
        }
    }

    private static void tooLarge() {
        String queue = Broker.queue("MaxMessageSizeInKilobytes", "1024");
        try (ServiceBusSenderClient sender = Client.sender(queue)) {
            Client.refused(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED,
                () -> sender.sendMessage(new ServiceBusMessage(new byte[2_000_000])));
            sender.sendMessage(new ServiceBusMessage("small"));
        }
        Expect.equal(1, Broker.activeMessages(queue));
    }

    private static void sessionHeld() {
        String queue = Broker.queue("RequiresSession", "true");
        try (ServiceBusSessionReceiverClient sessions =
                Client.builder().sessionReceiver().queueName(queue).buildClient();
            ServiceBusSessionReceiverClient others =
                Client.builder().sessionReceiver().queueName(queue).buildClient();
            ServiceBusReceiverClient holder = sessions.acceptSession("a")) {
            AmqpException error =
                Expect.failure(AmqpException.class, () -> others.acceptSession("a"));
            Expect.equal(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, error.getErrorCondition());
            Expect.equal("a", holder.getSessionId());
        }
    }
}
