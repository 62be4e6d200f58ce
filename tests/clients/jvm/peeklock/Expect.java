package peeklock;

import java.util.Collection;
import java.util.Map;
import java.util.Objects;
import java.util.function.BooleanSupplier;
import java.util.concurrent.locks.LockSupport;

/** What must hold: the expected value first, and a failure that shows both. */
public final class Expect {
    private static final long POLL_NANOS = 20_000_000;

    private Expect() {
    }

    public static void equal(Object expected, Object actual) {
        if (!Objects.deepEquals(expected, actual)) {
            throw new AssertionError("expected " + shown(expected) + " but got " + shown(actual));
        }
    }

    /** With its type, and the types inside, which is where equal texts differ. */
    private static String shown(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(one -> one.getKey() + "=" + shown(one.getValue()))
                .sorted().toList().toString();
        }
        if (value instanceof byte[] bytes) {
            return bytes.length + " bytes";
        }
        return value == null || value instanceof Collection<?>
            ? "" + value : value + " (" + value.getClass().getSimpleName() + ")";
    }

    public static void that(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    /** The failure this action ends with; not failing, or failing otherwise, is the surprise. */
    public static <E extends Throwable> E failure(Class<E> kind, Report.Scenario action) {
        try {
            action.run();
        } catch (Throwable error) {
            if (kind.isInstance(error)) {
                return kind.cast(error);
            }
            throw new AssertionError("expected " + kind.getSimpleName() + " but got " + error, error);
        }
        throw new AssertionError("expected " + kind.getSimpleName() + " but nothing failed");
    }

    /** Wait for something another thread brings about. */
    public static void soon(long seconds, String what, BooleanSupplier holds) {
        long deadline = System.nanoTime() + seconds * 1_000_000_000L;
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError(what + " did not happen in " + seconds + " s");
            }
            LockSupport.parkNanos(POLL_NANOS);
        }
    }
}
