package peeklock;

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;

/** Faults that the broker is told to make, as users of the SDK see them: first without, then with retries. */
final class Faults {
    private Faults() {
    }

    static void add(Report report) {
        report.add("fault-server-busy", () -> both("{\"kind\": \"server_busy\"}", 2, 1,
            AmqpErrorCondition.SERVER_BUSY_ERROR));
        report.add("fault-detach", () -> both("{\"kind\": \"detach\"}", 1, 1,
            AmqpErrorCondition.LINK_DETACH_FORCED));
        report.add("fault-drop-before", () -> both(drop("before"), 1, 1, null));
        report.add("fault-drop-after", () -> both(drop("after"), 1, 3, null));
    }

    private static String drop(String when) {
        return "{\"kind\": \"drop_connection\", \"when\": \"" + when + "\"}";
    }

    /** Make the first so many sends to a queue fail. */
    private static String fault(String queue, int first, String action) {
        return Broker.fault("{\"operation\": \"send\", \"entity\": \"" + queue
            + "\", \"occurrence\": {\"first\": " + first + "}, \"action\": " + action + "}");
    }

    private static void send(String queue, AmqpRetryOptions retries) {
        try (ServiceBusSenderClient sender = new ServiceBusClientBuilder()
            .connectionString(Broker.variable("PEEKLOCK_CONNECTION_STRING"))
            .retryOptions(retries).sender().queueName(queue).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("a"));
        }
    }

    private static AmqpException cause(Throwable error) {
        for (Throwable one = error; one != null; one = one.getCause()) {
            if (one instanceof AmqpException found) {
                return found;
            }
        }
        throw new AssertionError("no AMQP error caused it", error);
    }

    private static void both(String action, int first, int stored, AmqpErrorCondition condition) {
        String queue = Broker.queue();
        fault(queue, 1, action);
        ServiceBusException error = Expect.failure(ServiceBusException.class,
            () -> send(queue, Client.patience(Client.WAIT)));
        // With retries, even none, the SDK says that they are exhausted, and names the error as the cause.
        AmqpException cause = cause(error);
        Report.remark(cause.getErrorCondition() + ", transient: " + cause.isTransient());
        Expect.that(cause.isTransient(), "it is not worth a retry: " + cause);
        if (condition != null) {
            Expect.equal(condition, cause.getErrorCondition());
        }
        String name = fault(queue, first, action);
        send(queue, new AmqpRetryOptions().setMaxRetries(3).setMode(AmqpRetryMode.FIXED)
            .setDelay(Duration.ofMillis(20)).setTryTimeout(Client.WAIT));
        Expect.equal(first, Broker.hits(name));
        try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            Client.receive(receiver, stored).forEach(receiver::complete);
            Client.nothingComes(receiver);
        }
    }
}
