package peeklock;

import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BiConsumer;
import java.util.function.Function;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.Symbol;

/** Every property and type, written here and read by others, and the other way round. */
final class Types {
    private static final Map<String, BiConsumer<ServiceBusMessage, Object>> SETTERS = Map.of(
        "message-id", (message, value) -> message.setMessageId((String) value),
        "correlation-id", (message, value) -> message.setCorrelationId((String) value),
        "subject", (message, value) -> message.setSubject((String) value),
        "content-type", (message, value) -> message.setContentType(value.toString()),
        "to", (message, value) -> message.setTo((String) value),
        "reply-to", (message, value) -> message.setReplyTo((String) value),
        "session-id", (message, value) -> message.setSessionId((String) value),
        "reply-to-session-id", (message, value) -> message.setReplyToSessionId((String) value),
        "partition-key", (message, value) -> message.setPartitionKey((String) value),
        "time-to-live", (message, value) -> message.setTimeToLive((Duration) value));

    private static final Map<String, Function<ServiceBusReceivedMessage, Object>> GETTERS = Map.ofEntries(
        Map.entry("message-id", ServiceBusReceivedMessage::getMessageId),
        Map.entry("correlation-id", ServiceBusReceivedMessage::getCorrelationId),
        Map.entry("subject", ServiceBusReceivedMessage::getSubject),
        Map.entry("content-type", message -> Symbol.valueOf(message.getContentType())),
        Map.entry("to", ServiceBusReceivedMessage::getTo),
        Map.entry("reply-to", ServiceBusReceivedMessage::getReplyTo),
        Map.entry("session-id", ServiceBusReceivedMessage::getSessionId),
        Map.entry("reply-to-session-id", ServiceBusReceivedMessage::getReplyToSessionId),
        Map.entry("partition-key", ServiceBusReceivedMessage::getPartitionKey),
        Map.entry("time-to-live", ServiceBusReceivedMessage::getTimeToLive),
        Map.entry("body", message -> new Binary(message.getBody().toBytes())));

    private Types() {
    }

    static void add(Report report) {
        report.add("properties-round-trip", Types::write);
    }

    private static void write() throws Exception {
        List<TypeTable.Row> rows = TypeTable.rows();
        TypeTable.Row body = rows.stream().filter(row -> row.name().equals("body")).findFirst().orElseThrow();
        ServiceBusMessage message =
            new ServiceBusMessage(BinaryData.fromBytes(((Binary) body.toJava()).getArray()));
        ServiceBusMessage apart = new ServiceBusMessage("apart");
        for (TypeTable.Row row : rows) {
            if (row.isApplicationProperty()) {
                (row.apart() ? apart : message).getApplicationProperties().put(row.name(), row.toJava());
            } else if (row != body) {
                SETTERS.get(row.name()).accept(message, row.toJava());
            }
        }
        message.getApplicationProperties().put("written", TypeTable.written(rows));
        String queue = TypeTable.queue("");
        send(queue, message);
        send(TypeTable.queue(TypeTable.APART), apart);
        read(queue);
    }

    private static void send(String queue, ServiceBusMessage message) {
        try (ServiceBusSenderClient sender = Client.sender(queue)) {
            sender.sendMessage(message);
        }
    }

    /** What another client wrote. */
    static void read(String queue) throws Exception {
        ServiceBusReceivedMessage message = takeAndReturn(queue);
        String written = (String) message.getApplicationProperties().get("written");
        compare(message, TypeTable.named(written, false), "written");
        List<TypeTable.Row> apart = TypeTable.named(written, true);
        if (!apart.isEmpty()) {
            compare(takeAndReturn(queue + TypeTable.APART), apart);
        }
    }

    private static ServiceBusReceivedMessage takeAndReturn(String queue) {
        try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            receiver.abandon(message);
            return message;
        }
    }

    /** A message must have these rows, and no application property besides but those named. */
    private static void compare(
        ServiceBusReceivedMessage message, List<TypeTable.Row> rows, String... besides) {
        Map<String, Object> properties = message.getApplicationProperties();
        Set<String> surplus = new TreeSet<>(properties.keySet());
        surplus.removeAll(List.of(besides));
        List<String> wrong = new ArrayList<>();
        for (TypeTable.Row row : rows) {
            try {
                row.expect(row.isApplicationProperty()
                    ? properties.get(row.name()) : GETTERS.get(row.name()).apply(message));
            } catch (AssertionError error) {
                wrong.add(error.getMessage());
            }
            surplus.remove(row.name());
        }
        Expect.equal(List.of(), wrong);
        Expect.equal(Set.of(), surplus);
    }
}
