package peeklock;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.Date;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.Symbol;
import org.apache.qpid.proton.amqp.UnsignedByte;
import org.apache.qpid.proton.amqp.UnsignedInteger;
import org.apache.qpid.proton.amqp.UnsignedLong;
import org.apache.qpid.proton.amqp.UnsignedShort;

/** The table of types that all clients write and read: its values as Java has them, and as text. */
public final class TypeTable {
    /** What the name of the queue for rows apart has at its end. */
    public static final String APART = "-apart";

    /**
     * One value, of one AMQP type, in one section of a message. Rows apart, which some library cannot
     * read, are in a message of their own.
     */
    public record Row(String name, String section, String type, String value, boolean apart) {
        public boolean isApplicationProperty() {
            return section.equals("application-properties");
        }

        /** The value in the class that AMQP libraries for Java use for its type. */
        public Object toJava() {
            return type.equals("null") ? null : READERS.get(type).apply(value);
        }

        /** Whether a value that was read is this one, in this type. */
        public void expect(Object read) {
            Object expected = toJava();
            boolean sameClass = expected == null || expected.getClass().isInstance(read);
            if (!sameClass || !value.equals(text(read))) {
                throw new AssertionError(name + ": expected " + type + " '" + value + "' but got "
                    + (read == null ? "nothing" : read.getClass().getSimpleName()) + " '" + text(read) + "'");
            }
        }
    }

    private static final Map<String, Function<String, Object>> READERS = Map.ofEntries(
        Map.entry("string", text -> text),
        Map.entry("boolean", Boolean::valueOf),
        Map.entry("byte", Byte::valueOf),
        Map.entry("ubyte", UnsignedByte::valueOf),
        Map.entry("short", Short::valueOf),
        Map.entry("ushort", UnsignedShort::valueOf),
        Map.entry("int", Integer::valueOf),
        Map.entry("uint", UnsignedInteger::valueOf),
        Map.entry("long", Long::valueOf),
        Map.entry("ulong", UnsignedLong::valueOf),
        Map.entry("float", Float::valueOf),
        Map.entry("double", Double::valueOf),
        Map.entry("char", text -> text.charAt(0)),
        Map.entry("timestamp", text -> Date.from(Instant.parse(text))),
        Map.entry("uuid", UUID::fromString),
        Map.entry("binary", text -> new Binary(HexFormat.of().parseHex(text))),
        Map.entry("symbol", Symbol::valueOf),
        Map.entry("duration", Duration::parse),
        Map.entry("com.microsoft:timespan", Duration::parse),
        Map.entry("com.microsoft:datetime-offset", OffsetDateTime::parse),
        Map.entry("com.microsoft:uri", URI::create));

    private TypeTable() {
    }

    public static List<Row> rows() throws IOException {
        record Table(List<Row> rows) {
        }

        return new ObjectMapper().disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
            .readValue(new File(Broker.variable("PEEKLOCK_TYPES_FILE")), Table.class).rows();
    }

    /** The rows a message names, those in it or those apart. */
    public static List<Row> named(String written, boolean apart) throws IOException {
        List<String> names = List.of(written.split(","));
        return rows().stream().filter(row -> names.contains(row.name()) && row.apart() == apart).toList();
    }

    /** The queue for what this client writes, or with an ending that for its rows apart. */
    public static String queue(String ending) {
        String queue = Broker.variable("PEEKLOCK_RUN") + "-types-" + Broker.CLIENT + ending;
        Broker.put(queue, "QueueDescription", "<MaxDeliveryCount>100</MaxDeliveryCount>");
        return queue;
    }

    /** What a message says in `written` when these rows were written. */
    public static String written(List<Row> rows) {
        return String.join(",", rows.stream().map(Row::name).sorted().toList());
    }

    private static String text(Object value) {
        if (value == null) {
            return "";
        }
        if (value instanceof byte[] bytes) {
            return HexFormat.of().formatHex(bytes);
        }
        if (value instanceof Binary binary) {
            return HexFormat.of().formatHex(
                binary.getArray(), binary.getArrayOffset(), binary.getArrayOffset() + binary.getLength());
        }
        return value instanceof Date date ? date.toInstant().toString() : value.toString();
    }
}
