package peeklock;

import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.util.List;
import java.util.Map;

/** What a receiver can do with a message. */
final class Settling {
    private Settling() {
    }

    static void add(Report report) {
        report.add("complete", Settling::complete);
        report.add("abandon-with-properties", Settling::abandon);
        report.add("defer-and-fetch", Settling::defer);
        report.add("dead-letter-and-read-back", Settling::deadLetter);
        report.add("receive-and-delete", Settling::receiveAndDelete);
        report.add("peek", Settling::peek);
        report.skip("purge-empty", "the SDK deletes no messages");
    }

    private static void complete() {
        String queue = Broker.queue();
        Client.send(queue, "a", "b");
        try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            List<ServiceBusReceivedMessage> messages = Client.receive(receiver, 2);
            messages.forEach(receiver::complete);
            Client.nothingComes(receiver);
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }

    private static void abandon() {
        String queue = Broker.queue();
        Client.send(queue, "again");
        try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            Expect.equal(0L, message.getDeliveryCount());
            receiver.abandon(message,
                new AbandonOptions().setPropertiesToModify(Map.of("attempt", 1, "why", "busy")));
            ServiceBusReceivedMessage again = Client.receiveOne(receiver);
            Expect.equal(1L, again.getDeliveryCount());
            Expect.equal(message.getSequenceNumber(), again.getSequenceNumber());
            Expect.equal(1, again.getApplicationProperties().get("attempt"));
            Expect.equal("busy", again.getApplicationProperties().get("why"));
            receiver.complete(again);
        }
    }

    /** A deferred message is skipped, fetched by its number, and settled like any other. */
    private static void defer() {
        String queue = Broker.queue();
        Client.send(queue, "a", "b", "c");
        try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            List<ServiceBusReceivedMessage> messages = Client.receive(receiver, 3);
            receiver.defer(messages.get(0),
                new DeferOptions().setPropertiesToModify(Map.of("later", true)));
            receiver.defer(messages.get(1));
            receiver.complete(messages.get(2));
            Client.nothingComes(receiver);
            ServiceBusReceivedMessage fetched =
                receiver.receiveDeferredMessage(messages.get(0).getSequenceNumber());
            Expect.equal("a", fetched.getBody().toString());
            Expect.equal(true, fetched.getApplicationProperties().get("later"));
            Expect.that(fetched.getLockToken() != null, "the fetched message has no lock token");
            receiver.complete(fetched);
            List<Long> numbers = List.of(messages.get(1).getSequenceNumber());
            List<ServiceBusReceivedMessage> rest =
                receiver.receiveDeferredMessageBatch(numbers).stream().toList();
            Expect.equal(List.of("b"), Client.bodies(rest));
            receiver.deadLetter(rest.get(0), new DeadLetterOptions().setDeadLetterReason("late"));
        }
        try (ServiceBusReceiverClient deadLetters = Client.deadLetters(queue)) {
            Expect.equal("late", Client.receiveOne(deadLetters).getDeadLetterReason());
        }
    }

    private static void deadLetter() {
        String queue = Broker.queue();
        Client.send(queue, "a", "b");
        try (ServiceBusReceiverClient receiver = Client.receiver(queue);
            ServiceBusReceiverClient deadLetters = Client.deadLetters(queue)) {
            List<ServiceBusReceivedMessage> messages = Client.receive(receiver, 2);
            receiver.deadLetter(messages.get(0), new DeadLetterOptions()
                .setDeadLetterReason("poison").setDeadLetterErrorDescription("does not parse")
                .setPropertiesToModify(Map.of("seen-by", "java")));
            receiver.deadLetter(messages.get(1));
            Client.nothingComes(receiver);
            List<ServiceBusReceivedMessage> dead = Client.receive(deadLetters, 2);
            Expect.equal(List.of("a", "b"), Client.bodies(dead));
            Expect.equal("poison", dead.get(0).getDeadLetterReason());
            Expect.equal("does not parse", dead.get(0).getDeadLetterErrorDescription());
            Expect.equal("java", dead.get(0).getApplicationProperties().get("seen-by"));
            dead.forEach(deadLetters::complete);
            Client.nothingComes(deadLetters);
        }
    }

    private static void receiveAndDelete() {
        String queue = Broker.queue();
        Client.send(queue, "a", "b");
        try (ServiceBusReceiverClient receiver = Client.builder().receiver().queueName(queue)
            .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            Expect.equal(List.of("a", "b"), Client.bodies(Client.receive(receiver, 2)));
            Expect.equal(0, Broker.activeMessages(queue));
        }
    }

    /** Peeking shows everything, locked or deferred, in order, and changes nothing. */
    private static void peek() {
        String queue = Broker.queue();
        Client.send(queue, "a", "b", "c", "d");
        try (ServiceBusReceiverClient receiver = Client.receiver(queue);
            ServiceBusReceiverClient onlooker = Client.receiver(queue)) {
            List<ServiceBusReceivedMessage> messages = Client.receive(receiver, 2);
            receiver.defer(messages.get(0));
            ServiceBusReceivedMessage first = onlooker.peekMessage();
            Expect.equal("a", first.getBody().toString());
            Expect.equal("DEFERRED", first.getState().toString());
            Expect.equal(List.of("b", "c"), Client.bodies(onlooker.peekMessages(2)));
            Expect.equal(List.of("d"), Client.bodies(onlooker.peekMessages(9)));
            Expect.equal(List.of(), Client.bodies(onlooker.peekMessages(9)));
            Expect.equal(List.of("c", "d"),
                Client.bodies(onlooker.peekMessages(9, messages.get(1).getSequenceNumber() + 1)));
            Expect.equal(List.of("c", "d"), Client.bodies(Client.receive(receiver, 2)));
        }
        String empty = Broker.queue();
        try (ServiceBusReceiverClient onlooker = Client.receiver(empty)) {
            Expect.equal(null, onlooker.peekMessage());
        }
    }
}
