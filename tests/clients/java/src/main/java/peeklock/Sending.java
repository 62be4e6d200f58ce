package peeklock;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderAsyncClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;

/** One message, many at once, batches, and a large one. */
final class Sending {
    private static final int MANY = 500;

    private Sending() {
    }

    static void add(Report report) {
        report.add("send-one", Sending::one);
        report.add("send-many", Sending::many);
        report.add("send-batch", Sending::batch);
        report.add("full-batch", Claims::fullBatch);
        report.add("send-1mb", Sending::large);
    }

    private static void one() {
        String queue = Broker.queue();
        try (ServiceBusSenderClient sender = Client.sender(queue);
            ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            sender.sendMessage(new ServiceBusMessage("one"));
            Expect.equal(1, Broker.activeMessages(queue));
            Expect.equal("one", Client.receiveOne(receiver).getBody().toString());
        }
    }

    /**
     * Sends that do not wait for each other: all arrive, and in the order they were stored in. The
     * SDK itself shuffles them on their way out.
     */
    private static void many() {
        String queue = Broker.queue();
        try (ServiceBusSenderAsyncClient sender =
                Client.builder().sender().queueName(queue).buildAsyncClient();
            ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            Flux.range(0, MANY)
                .flatMap(number -> sender.sendMessage(new ServiceBusMessage("m" + number)), MANY)
                .blockLast(Client.WAIT);
            List<ServiceBusReceivedMessage> received = Client.receive(receiver, MANY);
            Set<String> sent = new HashSet<>();
            IntStream.range(0, MANY).forEach(number -> sent.add("m" + number));
            Expect.equal(sent, new HashSet<>(Client.bodies(received)));
            List<Long> numbers =
                received.stream().map(ServiceBusReceivedMessage::getSequenceNumber).toList();
            Expect.equal(numbers.stream().sorted().toList(), numbers);
        }
    }

    private static void batch() {
        String queue = Broker.queue();
        try (ServiceBusSenderClient sender = Client.sender(queue);
            ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            Expect.that(batch.getMaxSizeInBytes() >= 262_144, "batches hold too little");
            for (String text : List.of("a", "b", "c")) {
                ServiceBusMessage message = new ServiceBusMessage(text).setMessageId("id-" + text);
                message.getApplicationProperties().put("text", text);
                Expect.that(batch.tryAddMessage(message), "the batch is full");
            }
            sender.sendMessages(batch);
            sender.sendMessages(Client.messages("d", "e"));
            List<ServiceBusReceivedMessage> received = Client.receive(receiver, 5);
            Expect.equal(List.of("a", "b", "c", "d", "e"), Client.bodies(received));
            for (ServiceBusReceivedMessage message : received.subList(0, 3)) {
                Expect.equal("id-" + message.getBody(), message.getMessageId());
                Expect.equal(message.getBody().toString(), message.getApplicationProperties().get("text"));
            }
        }
        fullBatch();
    }

    /** A batch says when it is full, and then goes through. */
    private static void fullBatch() {
        String queue = Broker.queue();
        try (ServiceBusSenderClient sender = Client.sender(queue)) {
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            int count = 0;
            while (batch.tryAddMessage(new ServiceBusMessage(new byte[10_000]))) {
                count++;
            }
            sender.sendMessages(batch);
            Expect.that(count > 20, "a batch held " + count);
            Expect.equal(count, Broker.activeMessages(queue));
        }
    }

    private static void large() {
        String queue = Broker.queue();
        byte[] body = new byte[1 << 20];
        new Random(1).nextBytes(body);
        try (ServiceBusSenderClient sender = Client.sender(queue);
            ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            sender.sendMessage(new ServiceBusMessage(body));
            Expect.equal(body, Client.receiveOne(receiver).getBody().toBytes());
        }
    }
}
