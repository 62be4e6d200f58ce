package peeklock;

import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Getting messages: on demand, ahead of demand, by a processor. */
final class Receiving {
    private Receiving() {
    }

    static void add(Report report) {
        report.add("receive-no-prefetch", Receiving::onDemand);
        report.add("receive-prefetch", Receiving::ahead);
        report.add("processor", () -> {
            processor();
            Sessions.processor();
        });
    }

    /** Nothing is locked that was not asked for, and what comes late is not lost. */
    private static void onDemand() {
        String queue = Broker.queue();
        try (ServiceBusReceiverClient first = Client.receiver(queue);
            ServiceBusReceiverClient second = Client.receiver(queue)) {
            Client.nothingComes(first);
            Client.send(queue, "a", "b", "c");
            List<String> received = new ArrayList<>();
            for (ServiceBusReceiverClient receiver : List.of(first, second, first)) {
                ServiceBusReceivedMessage message = Client.receiveOne(receiver);
                received.add(message.getBody().toString());
                receiver.complete(message);
            }
            received.sort(null);
            Expect.equal(List.of("a", "b", "c"), received);
        }
    }

    private static void ahead() {
        String queue = Broker.queue();
        Client.send(queue, "a", "b", "c", "d");
        try (ServiceBusReceiverClient receiver =
            Client.builder().receiver().queueName(queue).prefetchCount(10).buildClient()) {
            for (String text : List.of("a", "b", "c", "d")) {
                ServiceBusReceivedMessage message = Client.receiveOne(receiver);
                Expect.equal(text, message.getBody().toString());
                receiver.complete(message);
            }
            Client.nothingComes(receiver);
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }

    /** Four at a time, completed by the SDK when the callback returns, abandoned when it throws. */
    private static void processor() {
        String queue = Broker.queue();
        Set<String> done = ConcurrentHashMap.newKeySet();
        List<Throwable> errors = new ArrayList<>();
        try (ServiceBusProcessorClient processor = Client.builder().processor().queueName(queue)
            .maxConcurrentCalls(4)
            .processMessage(context -> {
                ServiceBusReceivedMessage message = context.getMessage();
                if (message.getBody().toString().equals("m3") && message.getDeliveryCount() == 0) {
                    throw new IllegalStateException("not the first time");
                }
                done.add(message.getBody() + " after " + message.getDeliveryCount());
            })
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient()) {
            processor.start();
            Client.send(queue, "m1", "m2", "m3", "m4", "m5");
            Set<String> expected = Set.of("m1 after 0", "m2 after 0", "m3 after 1", "m4 after 0",
                "m5 after 0");
            Expect.soon(10, "processing", () -> done.equals(expected));
            Expect.soon(10, "completion", () -> Broker.activeMessages(queue) == 0);
        }
        Expect.equal(1, errors.size());
    }
}
