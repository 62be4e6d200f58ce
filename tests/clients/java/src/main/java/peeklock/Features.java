package peeklock;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
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
        report.add("forwarding-round-trip", Features::forwardingRoundTrip);
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

    private static void forwardingRoundTrip() {
        ServiceBusAdministrationClient admin = Administration.client();
        String last = Broker.queue();
        String first = Broker.name("forwarding");
        admin.createQueue(first, new CreateQueueOptions().setForwardTo(last));
        QueueProperties read = admin.getQueue(first);
        Expect.that(read.getForwardTo().replaceAll("/$", "").endsWith("/" + last), read.getForwardTo());
        String forwardsTo = read.getForwardTo();
        admin.updateQueue(read);
        Expect.equal(forwardsTo, admin.getQueue(first).getForwardTo());
        ServiceBusMessage message = new ServiceBusMessage("passed on").setMessageId("id")
            .setCorrelationId("7").setSubject("order").setContentType("text/plain")
            .setReplyTo("answers").setTo("somewhere").setPartitionKey("key")
            .setTimeToLive(Duration.ofHours(1));
        message.getApplicationProperties().put("size", 5);
        try (ServiceBusSenderClient sender = Client.sender(first);
            ServiceBusReceiverClient receiver = Client.receiver(last)) {
            sender.sendMessage(message);
            ServiceBusReceivedMessage found = Client.receiveOne(receiver);
            Expect.equal(
                List.of("passed on", "id", "7", "order", "text/plain", "answers", "somewhere", "key"),
                List.of(found.getBody().toString(), found.getMessageId(), found.getCorrelationId(),
                    found.getSubject(), found.getContentType(), found.getReplyTo(), found.getTo(),
                    found.getPartitionKey()));
            Expect.equal(Duration.ofHours(1), found.getTimeToLive());
            Expect.equal(5, found.getApplicationProperties().get("size"));
            Expect.equal(1L, found.getEnqueuedSequenceNumber());
            Expect.equal(0L, found.getDeliveryCount());
            receiver.complete(found);
        }
    }
}
