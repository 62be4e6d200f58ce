package peeklock;

import com.azure.core.exception.ClientAuthenticationException;
import com.azure.core.exception.HttpResponseException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import java.net.URI;
import java.time.OffsetDateTime;
import java.util.List;

/** A broker that is strict: keys of each claim, and batches filled to its limits. */
final class Claims {
    private static final int UNAUTHORIZED = 401;

    private Claims() {
    }

    private static String string(String claim) {
        return Broker.variable("PEEKLOCK_STRICT_" + claim + "_CONNECTION_STRING");
    }

    private static ServiceBusClientBuilder builder(String claim) {
        return new ServiceBusClientBuilder().connectionString(string(claim))
            .retryOptions(Client.patience(Client.WAIT));
    }

    private static ServiceBusAdministrationClient administer(String claim) {
        int port = URI.create(Broker.parts(string(claim)).get("Endpoint")).getPort();
        return Administration.client(string(claim), port);
    }

    static void claims() {
        String queue = Broker.variable("PEEKLOCK_STRICT_QUEUE");
        try (ServiceBusSenderClient sender = builder("SEND").sender().queueName(queue).buildClient();
            ServiceBusReceiverClient receiver =
                builder("SEND").receiver().queueName(queue).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("sent"));
            Missing.refused(ServiceBusFailureReason.UNAUTHORIZED,
                () -> receiver.receiveMessages(1, Client.NOTHING).stream().toList());
            Client.refused(ServiceBusFailureReason.UNAUTHORIZED, receiver::peekMessage);
        }
        try (ServiceBusSenderClient sender = builder("LISTEN").sender().queueName(queue).buildClient();
            ServiceBusReceiverClient receiver =
                builder("LISTEN").receiver().queueName(queue).buildClient()) {
            ServiceBusMessage message = new ServiceBusMessage("x");
            Client.refused(ServiceBusFailureReason.UNAUTHORIZED, () -> sender.sendMessage(message));
            Client.refused(ServiceBusFailureReason.UNAUTHORIZED,
                () -> sender.scheduleMessage(message, OffsetDateTime.now().plusDays(1)));
            Expect.equal("sent", receiver.peekMessage().getBody().toString());
            ServiceBusReceivedMessage received = Client.receiveOne(receiver);
            Expect.equal("sent", received.getBody().toString());
            receiver.complete(received);
        }
        for (String claim : List.of("SEND", "LISTEN")) {
            ServiceBusAdministrationClient admin = administer(claim);
            for (Report.Scenario request : List.<Report.Scenario>of(
                () -> admin.getQueue(queue), () -> admin.createQueue(Broker.name("refused")))) {
                HttpResponseException error = Expect.failure(ClientAuthenticationException.class, request);
                Expect.equal(UNAUTHORIZED, error.getResponse().getStatusCode());
            }
        }
        ServiceBusAdministrationClient admin = administer("MANAGE");
        String made = admin.createQueue(Broker.name("managed")).getName();
        try (ServiceBusSenderClient sender = builder("MANAGE").sender().queueName(made).buildClient();
            ServiceBusReceiverClient receiver =
                builder("MANAGE").receiver().queueName(made).buildClient()) {
            // The SDK declares a transaction before it puts its first token.
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("managed"), transaction);
            sender.commitTransaction(transaction);
            receiver.complete(Client.receiveOne(receiver));
        }
        admin.deleteQueue(made);
    }

    /** Smaller and smaller messages are added, so that hardly a byte is left. */
    static void fullBatch() {
        String queue = Broker.variable("PEEKLOCK_STRICT_QUEUE");
        ServiceBusClientBuilder builder = builder("MANAGE");
        try (ServiceBusSenderClient sender = builder.sender().queueName(queue).buildClient();
            ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).buildClient()) {
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            for (int size : new int[] {5000, 500, 50, 5, 0}) {
                boolean fits = true;
                while (fits) {
                    fits = batch.tryAddMessage(new ServiceBusMessage(new byte[size]));
                }
            }
            sender.sendMessages(batch);
            Client.receive(receiver, batch.getCount()).forEach(receiver::complete);
            Report.remark(batch.getSizeInBytes() + " of " + batch.getMaxSizeInBytes() + " bytes");
        }
    }
}
