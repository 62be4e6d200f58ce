package peeklock;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.util.List;

/** What entities do by themselves. */
final class Features {
    private Features() {
    }

    static void add(Report report) {
        report.add("duplicate-detection", Features::duplicateDetection);
        report.add("time-to-live", Features::timeToLive);
        report.add("forwarding", Features::forwarding);
    }

    private static void duplicateDetection() {
        String queue = Broker.queue("RequiresDuplicateDetection", "true",
            "DuplicateDetectionHistoryTimeWindow", "PT1M");
        try (ServiceBusSenderClient sender = Client.sender(queue);
            ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            sender.sendMessage(new ServiceBusMessage("first").setMessageId("1"));
            sender.sendMessage(new ServiceBusMessage("again").setMessageId("1"));
            sender.sendMessage(new ServiceBusMessage("second").setMessageId("2"));
            Expect.equal(List.of("first", "second"), Client.bodies(receiver.peekMessages(9)));
            Broker.advance(61);
            sender.sendMessage(new ServiceBusMessage("new").setMessageId("1"));
            Expect.equal(List.of("new"), Client.bodies(receiver.peekMessages(9)));
        }
    }

    private static void timeToLive() {
        String queue = Broker.queue("DeadLetteringOnMessageExpiration", "true");
        try (ServiceBusSenderClient sender = Client.sender(queue);
            ServiceBusReceiverClient receiver = Client.receiver(queue);
            ServiceBusReceiverClient deadLetters = Client.deadLetters(queue)) {
            sender.sendMessage(new ServiceBusMessage("short").setTimeToLive(Duration.ofSeconds(30)));
            sender.sendMessage(new ServiceBusMessage("long").setTimeToLive(Duration.ofMinutes(30)));
            Broker.advance(31);
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            Expect.equal("long", message.getBody().toString());
            Expect.equal(Duration.ofMinutes(30), message.getTimeToLive());
            Expect.equal(message.getEnqueuedTime().plusMinutes(30), message.getExpiresAt());
            Client.nothingComes(receiver);
            Expect.equal("TTLExpiredException", Client.receiveOne(deadLetters).getDeadLetterReason());
        }
    }

    private static void forwarding() {
        String destination = Broker.queue();
        String queue = Broker.queue("ForwardTo", destination);
        String dying = Broker.queue("ForwardDeadLetteredMessagesTo", destination);
        Client.send(queue, "forwarded");
        Client.send(dying, "dead");
        try (ServiceBusReceiverClient receiver = Client.receiver(dying)) {
            receiver.deadLetter(Client.receiveOne(receiver));
        }
        try (ServiceBusReceiverClient receiver = Client.receiver(destination)) {
            List<ServiceBusReceivedMessage> received = Client.receive(receiver, 2);
            Expect.equal(List.of("forwarded", "dead"), Client.bodies(received));
            Expect.equal(dying, received.get(1).getDeadLetterSource());
        }
    }
}
