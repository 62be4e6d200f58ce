package orders;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class OrdersTest {
    private static final Duration WEEK = Duration.ofDays(7);
    private static final Duration PATIENCE = Duration.ofSeconds(10);

    private Peeklock peeklock;
    private ServiceBusClientBuilder builder;

    @BeforeEach
    void createNamespace() {
        peeklock = new Peeklock("{\"queues\": {\"orders\": {\"max_delivery_count\": 3}}}");
        builder = new ServiceBusClientBuilder().connectionString(peeklock.connectionString);
    }

    @AfterEach
    void deleteNamespace() {
        peeklock.close();
    }

    @Test
    void anOrderThatFailsThreeTimesBecomesADeadLetter() {
        try (ServiceBusSenderClient sender = builder.sender().queueName("orders").buildClient();
                ServiceBusReceiverClient receiver = builder.receiver().queueName("orders").buildClient();
                ServiceBusReceiverClient deadLetters = builder.receiver().queueName("orders")
                    .subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("no such thing").setMessageId("order-1"));
            for (int attempt = 0; attempt < 3; attempt++) {
                receiver.abandon(next(receiver));
            }
            peeklock.waitUntil("{\"entity\": \"orders\", \"state\": \"dead_lettered\", \"at_least\": 1}");
            ServiceBusReceivedMessage dead = next(deadLetters);
            assertEquals("order-1", dead.getMessageId());
            assertEquals("MaxDeliveryCountExceeded", dead.getDeadLetterReason());
        }
    }

    @Test
    void aReminderArrivesAWeekLater() {
        try (ServiceBusSenderClient sender = builder.sender().queueName("orders").buildClient();
                ServiceBusReceiverClient receiver = builder.receiver().queueName("orders").buildClient()) {
            sender.scheduleMessage(new ServiceBusMessage("pay"), OffsetDateTime.now().plus(WEEK));
            peeklock.waitUntil("{\"entity\": \"orders\", \"state\": \"scheduled\", \"equals\": 1}");
            peeklock.advanceClock(WEEK.toSeconds() + 1);
            ServiceBusReceivedMessage reminder = next(receiver);
            assertEquals("pay", reminder.getBody().toString());
            receiver.complete(reminder);
            peeklock.waitUntil("{\"is\": \"settled\"}");
        }
    }

    private static ServiceBusReceivedMessage next(ServiceBusReceiverClient receiver) {
        return receiver.receiveMessages(1, PATIENCE).stream().findFirst().orElseThrow();
    }
}
