package peeklock;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;

/** Messages for later. */
final class Scheduling {
    private Scheduling() {
    }

    static void add(Report report) {
        report.add("schedule", Scheduling::schedule);
        report.add("cancel-scheduled", Scheduling::cancel);
    }

    private static OffsetDateTime inTwoHours() {
        return OffsetDateTime.now().plusHours(2);
    }

    private static void schedule() {
        String queue = Broker.queue();
        try (ServiceBusSenderClient sender = Client.sender(queue);
            ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            Long number = sender.scheduleMessage(new ServiceBusMessage("later"), inTwoHours());
            sender.sendMessage(new ServiceBusMessage("later too").setScheduledEnqueueTime(inTwoHours()));
            List<ServiceBusReceivedMessage> peeked = receiver.peekMessages(9).stream().toList();
            Expect.equal(List.of("later", "later too"), Client.bodies(peeked));
            Expect.equal("SCHEDULED", peeked.get(0).getState().toString());
            Expect.equal(number, peeked.get(0).getSequenceNumber());
            Client.nothingComes(receiver);
            Broker.advance(2 * 3600);
            List<ServiceBusReceivedMessage> received = Client.receive(receiver, 2);
            Expect.equal(List.of("later", "later too"), Client.bodies(received));
            received.forEach(receiver::complete);
        }
    }

    private static void cancel() {
        String queue = Broker.queue();
        try (ServiceBusSenderClient sender = Client.sender(queue);
            ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            List<Long> numbers = new ArrayList<>();
            sender.scheduleMessages(Client.messages("a", "b", "c"), OffsetDateTime.now().plusDays(30))
                .forEach(numbers::add);
            sender.cancelScheduledMessage(numbers.get(0));
            sender.cancelScheduledMessages(numbers.subList(1, 2));
            Expect.equal(List.of("c"), Client.bodies(receiver.peekMessages(9)));
        }
    }
}
