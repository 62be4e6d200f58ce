package peeklock;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.time.Duration;
import java.util.List;

/** A broker that goes away, and a client that does. */
final class Endings {
    private Endings() {
    }

    static void add(Report report) {
        report.add("reconnect-after-restart", Endings::reconnect);
        report.add("clean-close", Endings::cleanClose);
    }

    /** The same client objects go on with the new broker. */
    private static void reconnect() throws Exception {
        String queue = Broker.queue();
        ServiceBusClientBuilder builder = Client.builder()
            .retryOptions(new AmqpRetryOptions().setMaxRetries(5).setDelay(Duration.ofMillis(300)));
        try (ServiceBusSenderClient sender = builder.sender().queueName(queue).buildClient();
            ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("before"));
            receiver.complete(Client.receiveOne(receiver));
            sender.sendMessage(new ServiceBusMessage("kept"));
            Broker.restart();
            sender.sendMessage(new ServiceBusMessage("after"));
            for (String text : List.of("kept", "after")) {
                ServiceBusReceivedMessage message = Client.receiveOne(receiver);
                Expect.equal(text, message.getBody().toString());
                receiver.complete(message);
            }
        }
    }

    /** Closing is quick, and frees what the client held: unsettled messages and sessions. */
    private static void cleanClose() {
        Expect.soon(10, "the end of earlier connections", () -> Broker.connections() == 0);
        String queue = Broker.queue();
        Client.send(queue, "held");
        long started = System.nanoTime();
        try (ServiceBusReceiverClient receiver =
            Client.builder().receiver().queueName(queue).prefetchCount(5).buildClient()) {
            Client.receiveOne(receiver);
        }
        String sessionQueue = Broker.queue("RequiresSession", "true");
        try (ServiceBusSessionReceiverClient sessions =
            Client.builder().sessionReceiver().queueName(sessionQueue).buildClient()) {
            sessions.acceptSession("a").close();
        }
        long elapsedMs = (System.nanoTime() - started) / 1_000_000;
        Expect.that(elapsedMs < 5_000, "closing took " + elapsedMs + " ms");
        Expect.soon(5, "the end of its connections", () -> Broker.connections() == 0);
        Broker.advance(61); // its lock stands until it ends
        try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            Expect.equal("held", Client.receiveOne(receiver).getBody().toString());
        }
        Expect.soon(10, "freeing the session", () -> {
            try (ServiceBusSessionReceiverClient sessions =
                Client.builder().sessionReceiver().queueName(sessionQueue).buildClient()) {
                sessions.acceptSession("a").close();
                return true;
            } catch (RuntimeException error) {
                return false;
            }
        });
    }
}
