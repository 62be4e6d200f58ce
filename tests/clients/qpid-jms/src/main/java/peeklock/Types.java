package peeklock;

import jakarta.jms.BytesMessage;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSProducer;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.DescribedType;

/** Every body and property that JMS has, written here and read by others, and the other way round. */
final class Types {
    private static final String NAMES_LIKE_OTHERS = "?jms.prefetchPolicy.all=0&jms.validatePropertyNames=false";
    private static final long EPOCH_TICKS = 621_355_968_000_000_000L;
    private static final Set<String> PROPERTY_TYPES = Set.of(
        "string", "boolean", "byte", "short", "int", "long", "float", "double", "null");
    private static final Set<String> FIELDS =
        Set.of("correlation-id", "subject", "reply-to", "session-id", "time-to-live", "body");

    private interface Getter {
        Object get(Message message) throws JMSException;
    }

    /** With Qpid's own properties, and the prefix it gives to ids that have none. */
    private static final Map<String, Getter> GETTERS = Map.of(
        "message-id", message -> message.getJMSMessageID().replace("ID:AMQP_NO_PREFIX:", ""),
        "correlation-id", Message::getJMSCorrelationID,
        "subject", Message::getJMSType,
        "to", message -> ((Queue) message.getJMSDestination()).getQueueName(),
        "reply-to", message -> ((Queue) message.getJMSReplyTo()).getQueueName(),
        "session-id", message -> message.getStringProperty("JMSXGroupID"),
        "reply-to-session-id", message -> message.getStringProperty("JMS_AMQP_REPLY_TO_GROUP_ID"),
        "body", message -> new Binary(bytes(message)));

    private Types() {
    }

    static void add(Report report) {
        report.add("properties-round-trip", () -> {
            bodies();
            write();
        });
    }

    /** Each kind of message comes back as the kind it was. */
    private static void bodies() throws Exception {
        String queue = Broker.queue();
        try (JMSContext context = Client.connect(
            Client.address() + "?jms.prefetchPolicy.all=0&jms.deserializationPolicy.allowList=*",
            JMSContext.AUTO_ACKNOWLEDGE)) {
            Queue destination = context.createQueue(queue);
            JMSProducer producer = context.createProducer();
            MapMessage map = context.createMapMessage();
            map.setString("text", "Hällo");
            map.setLong("number", Long.MIN_VALUE);
            map.setBytes("bytes", new byte[] {0, -1});
            StreamMessage stream = context.createStreamMessage();
            stream.writeInt(7);
            stream.writeString("seven");
            producer.send(destination, context.createTextMessage("Hällo, ✓"))
                .send(destination, map).send(destination, stream)
                .send(destination, context.createObjectMessage(new ArrayList<>(List.of("a", 1))))
                .send(destination, context.createMessage());
            var consumer = context.createConsumer(destination);
            Expect.equal("Hällo, ✓", Client.receive(consumer).getBody(String.class));
            MapMessage readMap = (MapMessage) Client.receive(consumer);
            Expect.equal("Hällo", readMap.getString("text"));
            Expect.equal(Long.MIN_VALUE, readMap.getLong("number"));
            Expect.equal(new byte[] {0, -1}, readMap.getBytes("bytes"));
            StreamMessage readStream = (StreamMessage) Client.receive(consumer);
            Expect.equal(7, readStream.readInt());
            Expect.equal("seven", readStream.readString());
            Expect.equal(List.of("a", 1), ((ObjectMessage) Client.receive(consumer)).getObject());
            Expect.equal(List.of(), Collections.list(Client.receive(consumer).getPropertyNames())
                .stream().filter(name -> !name.toString().startsWith("JMS")).toList());
        }
    }

    private static void write() throws Exception {
        List<TypeTable.Row> rows = TypeTable.rows().stream()
            .filter(row -> row.isApplicationProperty()
                ? PROPERTY_TYPES.contains(row.type()) : FIELDS.contains(row.name()))
            .toList();
        String queue = TypeTable.queue("");
        try (JMSContext context =
            Client.connect(Client.address() + NAMES_LIKE_OTHERS, JMSContext.AUTO_ACKNOWLEDGE)) {
            BytesMessage message = context.createBytesMessage();
            JMSProducer producer = context.createProducer();
            for (TypeTable.Row row : rows) {
                if (row.isApplicationProperty()) {
                    message.setObjectProperty(row.name(), row.toJava());
                    continue;
                }
                switch (row.name()) {
                    case "correlation-id" -> message.setJMSCorrelationID(row.value());
                    case "subject" -> message.setJMSType(row.value());
                    case "reply-to" -> message.setJMSReplyTo(context.createQueue(row.value()));
                    case "session-id" -> message.setStringProperty("JMSXGroupID", row.value());
                    case "body" -> message.writeBytes(((Binary) row.toJava()).getArray());
                    default -> producer.setTimeToLive(3_600_000);
                }
            }
            message.setStringProperty("written", TypeTable.written(rows));
            producer.send(context.createQueue(queue), message);
        }
        read(queue);
    }

    /** What another client wrote. */
    static void read(String queue) throws Exception {
        try (JMSContext context =
            Client.connect(Client.address() + NAMES_LIKE_OTHERS, Client.INDIVIDUAL_ACKNOWLEDGE)) {
            Message message = takeAndReturn(context, queue);
            String written = message.getStringProperty("written");
            List<String> notShown = compare(message, TypeTable.named(written, false), "written");
            List<TypeTable.Row> apart = TypeTable.named(written, true);
            if (!apart.isEmpty()) {
                compare(takeAndReturn(context, queue + TypeTable.APART), apart);
            }
            if (!notShown.isEmpty()) {
                Report.remark("JMS does not show " + String.join(", ", notShown));
            }
        }
    }

    private static Message takeAndReturn(JMSContext context, String queue) throws JMSException {
        Message message = Client.receive(context.createConsumer(context.createQueue(queue)));
        message.setIntProperty(Client.ACKNOWLEDGE_AS, Client.RELEASED);
        message.acknowledge();
        return message;
    }

    /**
     * A message must have these rows, and no application property besides but those named.
     *
     * @return the names of rows that JMS does not show
     */
    private static List<String> compare(Message message, List<TypeTable.Row> rows, String... besides)
        throws JMSException {
        List<String> notShown = new ArrayList<>();
        List<String> wrong = new ArrayList<>();
        Set<String> surplus = new TreeSet<>();
        Collections.list(message.getPropertyNames()).forEach(name -> surplus.add(name.toString()));
        surplus.removeIf(name -> name.startsWith("JMS"));
        surplus.removeAll(List.of(besides));
        for (TypeTable.Row row : rows) {
            surplus.remove(row.name());
            if (!row.isApplicationProperty() && !GETTERS.containsKey(row.name())) {
                notShown.add(row.name());
                continue;
            }
            try {
                row.expect(row.isApplicationProperty()
                    ? plain(message.getObjectProperty(row.name()))
                    : GETTERS.get(row.name()).get(message));
            } catch (AssertionError error) {
                wrong.add(error.getMessage());
            }
        }
        Expect.equal(List.of(), wrong);
        Expect.equal(Set.of(), surplus);
        return notShown;
    }

    /** Bytes of a content type that is text make a text message. */
    private static byte[] bytes(Message message) throws JMSException {
        return message instanceof TextMessage text
            ? text.getText().getBytes(StandardCharsets.UTF_8) : message.getBody(byte[].class);
    }

    /** Service Bus's own types come as AMQP has them: a descriptor, and ticks or text. */
    private static Object plain(Object value) {
        if (!(value instanceof DescribedType described)) {
            return value;
        }
        Object inside = described.getDescribed();
        return switch (described.getDescriptor().toString()) {
            case "com.microsoft:timespan" -> Duration.ofNanos(100 * (long) inside);
            case "com.microsoft:datetime-offset" -> OffsetDateTime.ofInstant(
                Instant.ofEpochMilli(((long) inside - EPOCH_TICKS) / 10_000), ZoneOffset.UTC);
            case "com.microsoft:uri" -> URI.create((String) inside);
            default -> value;
        };
    }
}
