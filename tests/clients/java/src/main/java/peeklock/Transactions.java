package peeklock;

import com.azure.core.exception.AzureException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;

/** Several steps, all or none. */
final class Transactions {
    private Transactions() {
    }

    static void add(Report report) {
        report.add("transaction-commit", () -> {
            commit();
            crossEntity();
        });
        report.add("transaction-rollback", () -> {
            rollback();
            lostLock();
            refusedSend();
        });
        report.skip("transaction-rollback-then-settle",
            "the SDK counts a message as settled whatever becomes of the transaction");
        report.add("transaction-other-connection", Transactions::otherConnection);
    }

    /** Every kind of settlement, single, batched and scheduled sends: nothing before the commit. */
    private static void commit() {
        String queue = Broker.queue();
        Client.send(queue, "complete", "abandon", "defer", "dead-letter");
        ServiceBusClientBuilder builder = Client.builder();
        try (ServiceBusSenderClient sender = builder.sender().queueName(queue).buildClient();
            ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).buildClient();
            ServiceBusReceiverClient onlooker = Client.receiver(queue);
            ServiceBusReceiverClient deadLetters = Client.deadLetters(queue)) {
            List<ServiceBusReceivedMessage> held = Client.receive(receiver, 4);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(held.get(0), new CompleteOptions().setTransactionContext(transaction));
            receiver.abandon(held.get(1), new AbandonOptions().setTransactionContext(transaction)
                .setPropertiesToModify(Map.of("again", true)));
            receiver.defer(held.get(2), new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(held.get(3), new DeadLetterOptions().setTransactionContext(transaction)
                .setDeadLetterReason("poison"));
            sender.sendMessage(new ServiceBusMessage("sent"), transaction);
            sender.sendMessages(Client.messages("batched 1", "batched 2"), transaction);
            long scheduled = sender.scheduleMessage(
                new ServiceBusMessage("scheduled"), OffsetDateTime.now().plusDays(30), transaction);
            Expect.equal(List.of("complete", "abandon", "defer", "dead-letter"),
                Client.bodies(onlooker.peekMessages(20)));
            receiver.commitTransaction(transaction);

            Expect.equal("poison", Client.receiveOne(deadLetters).getDeadLetterReason());
            List<ServiceBusReceivedMessage> received = Client.receive(onlooker, 4);
            Expect.equal(List.of("abandon", "sent", "batched 1", "batched 2"), Client.bodies(received));
            Expect.equal(true, received.get(0).getApplicationProperties().get("again"));
            Expect.equal(1L, received.get(0).getDeliveryCount());
            Client.nothingComes(onlooker);
            Expect.equal("defer",
                onlooker.receiveDeferredMessage(held.get(2).getSequenceNumber()).getBody().toString());
            Expect.equal("scheduled", onlooker.peekMessage(scheduled).getBody().toString());
        }
    }

    /** What was sent is gone, what was settled is still locked until its lock runs out. */
    private static void rollback() {
        String queue = Broker.queue();
        Client.send(queue, "kept");
        ServiceBusClientBuilder builder = Client.builder();
        try (ServiceBusSenderClient sender = builder.sender().queueName(queue).buildClient();
            ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).buildClient();
            ServiceBusReceiverClient onlooker = Client.receiver(queue)) {
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("forgotten"), transaction);
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
            sender.rollbackTransaction(transaction);
            Expect.equal(List.of("kept"), Client.bodies(onlooker.peekMessages(9)));
            Client.nothingComes(onlooker);
            Broker.advance(61);
            Expect.equal("kept", Client.receiveOne(onlooker).getBody().toString());
            Expect.failure(AzureException.class, () -> sender.commitTransaction(transaction));
        }
    }

    /** Receive here, send there, both or neither: the builder's cross-entity mode. */
    private static void crossEntity() {
        String orders = Broker.queue();
        String invoices = Broker.queue();
        String events = Broker.topic();
        String subscription = Broker.subscription(events);
        Client.send(orders, "order 1", "order 2");
        ServiceBusClientBuilder builder = Client.builder().enableCrossEntityTransactions();
        try (ServiceBusReceiverClient receiver = builder.receiver().queueName(orders).buildClient();
            ServiceBusSenderClient invoicing = builder.sender().queueName(invoices).buildClient();
            ServiceBusSenderClient announcing = builder.sender().topicName(events).buildClient();
            ServiceBusReceiverClient invoiced = Client.receiver(invoices);
            ServiceBusReceiverClient announced = Client.builder().receiver().topicName(events)
                .subscriptionName(subscription).buildClient()) {
            List<ServiceBusReceivedMessage> held = Client.receive(receiver, 2);
            for (int i = 0; i < 2; i++) {
                ServiceBusTransactionContext transaction = receiver.createTransaction();
                invoicing.sendMessage(new ServiceBusMessage("invoice " + (i + 1)), transaction);
                announcing.sendMessage(new ServiceBusMessage("event " + (i + 1)), transaction);
                receiver.complete(held.get(i), new CompleteOptions().setTransactionContext(transaction));
                if (i == 0) {
                    receiver.rollbackTransaction(transaction);
                } else {
                    receiver.commitTransaction(transaction);
                }
            }
            Expect.equal(List.of("invoice 2"), Client.bodies(Client.receive(invoiced, 1)));
            Expect.equal(List.of("event 2"), Client.bodies(Client.receive(announced, 1)));
            Client.nothingComes(invoiced);
            Client.nothingComes(announced);
            Expect.equal(List.of("order 1"), Client.bodies(receiver.peekMessages(9)));
        }
    }

    /** The SDK does not say when a send is refused inside a transaction: the commit must. */
    private static void refusedSend() {
        String queue = Broker.queue("RequiresSession", "true");
        try (ServiceBusSenderClient sender = Client.sender(queue)) {
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(Client.inSession("a", "fine"), transaction);
            sender.sendMessage(new ServiceBusMessage("in no session"), transaction);
            Expect.failure(AzureException.class, () -> sender.commitTransaction(transaction));
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }

    /** One step that cannot be done any more undoes the others. */
    private static void lostLock() {
        String queue = Broker.queue("LockDuration", "PT30S");
        Client.send(queue, "slow");
        ServiceBusClientBuilder builder = Client.builder();
        try (ServiceBusSenderClient sender = builder.sender().queueName(queue).buildClient();
            ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).buildClient()) {
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            sender.sendMessage(new ServiceBusMessage("forgotten"), transaction);
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
            Broker.advance(31);
            Expect.failure(AzureException.class, () -> receiver.commitTransaction(transaction));
            Expect.equal(List.of("slow"), Client.bodies(receiver.peekMessages(9)));
        }
    }

    /** The SDK does not say that the second send is refused; the first one's commit is not its concern. */
    private static void otherConnection() {
        String queue = Broker.queue();
        try (ServiceBusSenderClient sender = Client.sender(queue);
            ServiceBusSenderClient stranger = Client.sender(queue);
            ServiceBusReceiverClient onlooker = Client.receiver(queue)) {
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("mine"), transaction);
            stranger.sendMessage(new ServiceBusMessage("not mine"), transaction);
            sender.commitTransaction(transaction);
            Expect.equal(List.of("mine"), Client.bodies(onlooker.peekMessages(9)));
        }
    }
}
