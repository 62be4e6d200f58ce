package peeklock;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverAsyncClient;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderAsyncClient;
import java.io.IOException;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;

/** Many requests at once, and messages settled by somebody else than their receiver. */
final class Concurrency {
    private static final int COUNT = 20;

    private Concurrency() {
    }

    private static List<String> texts(int count) {
        return IntStream.range(0, count).mapToObj(number -> String.format("%02d", number)).toList();
    }

    static void management() {
        String queue = Broker.queue("LockDuration", "PT30S");
        OffsetDateTime due = OffsetDateTime.now().plusDays(3);
        ServiceBusClientBuilder builder = Client.builder();
        try (ServiceBusSenderAsyncClient sender = builder.sender().queueName(queue).buildAsyncClient();
            ServiceBusReceiverAsyncClient renewing =
                builder.receiver().queueName(queue).buildAsyncClient();
            ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).buildClient()) {
            List<Long> numbers = Flux.fromIterable(texts(COUNT))
                .flatMap(text -> sender.scheduleMessage(new ServiceBusMessage(text), due), COUNT)
                .collectList().block(Client.WAIT);
            Expect.equal((long) COUNT, numbers.stream().distinct().count());
            Broker.advance(3 * 86_400 + 60);
            List<ServiceBusReceivedMessage> messages = Client.receive(receiver, COUNT);
            List<String> received = new ArrayList<>(Client.bodies(messages));
            Collections.sort(received);
            Expect.equal(texts(COUNT), received);
            Broker.advance(20);
            Flux.fromIterable(messages).flatMap(renewing::renewMessageLock, COUNT)
                .collectList().block(Client.WAIT);
            Broker.advance(20);
            messages.forEach(receiver::complete);
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }

    /** As with one message, the shortest lock must be outlived in real time. */
    static void autoRenewTen() throws IOException {
        Broker.restart();
        String queue = Broker.queue("LockDuration", "PT5S");
        Client.send(queue, texts(10).toArray(new String[0]));
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            List<ServiceBusReceivedMessage> messages = Client.receive(receiver, 10);
            messages.forEach(message ->
                receiver.renewMessageLock(message, Duration.ofSeconds(60), failures::add));
            try (ServiceBusReceiverClient rival = Client.receiver(queue)) {
                Expect.equal(0L, rival.receiveMessages(1, Duration.ofSeconds(6)).stream().count());
            }
            Expect.equal(List.of(), failures);
            messages.forEach(receiver::complete);
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }

    /** First the receiver is closed, then a whole connection. */
    static void backupSettlement() {
        String queue = Broker.queue();
        Client.send(queue, "of a link", "of a connection");
        List<ServiceBusReceivedMessage> held = new ArrayList<>();
        ServiceBusClientBuilder builder = Client.builder();
        try (ServiceBusReceiverClient open = builder.receiver().queueName(queue).buildClient()) {
            open.peekMessage(); // keeps the connection that the builder shares
            try (ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).buildClient()) {
                held.add(Client.receiveOne(receiver));
            }
            try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
                held.add(Client.receiveOne(receiver));
            }
            try (ServiceBusReceiverClient rival = Client.receiver(queue)) {
                Client.nothingComes(rival);
            }
            held.forEach(open::complete);
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }
}
