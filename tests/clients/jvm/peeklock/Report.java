package peeklock;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/** Runs scenarios and tells the runner, one JSON object a line, what became of each. */
public final class Report {
    /** What a client would do, with its own exceptions. */
    @FunctionalInterface
    public interface Scenario {
        void run() throws Exception;
    }

    /** The client has no API for it. */
    public static final class Skipped extends RuntimeException {
        public Skipped(String reason) {
            super(reason);
        }
    }

    private static String remark = "";

    private final Map<String, Scenario> scenarios = new LinkedHashMap<>();

    public Report add(String id, Scenario scenario) {
        if (scenarios.put(id, scenario) != null) {
            throw new IllegalArgumentException(id + " is there twice");
        }
        return this;
    }

    public Report skip(String id, String reason) {
        return add(id, () -> {
            throw new Skipped(reason);
        });
    }

    /** What is to be known of the scenario that runs now, though it passes. */
    public static void remark(String text) {
        remark = text;
    }

    /** Say what is being tested. */
    public static void versions(String library, Class<?> member) {
        String jar = member.getProtectionDomain().getCodeSource().getLocation().getPath();
        String version = jar.replaceAll(".*-(\\d[^/]*)\\.jar$", "$1");
        print("{\"versions\": {" + quoted(library) + ": " + quoted(version) + "}}");
    }

    /** Run all of them, or those of the short list where the runner asks for it. */
    public void run(Set<String> shortList, String... only) {
        boolean isShort = "1".equals(System.getenv("PEEKLOCK_SHORT"));
        scenarios.forEach((id, scenario) -> {
            boolean chosen = only.length == 0 ? !isShort || shortList.contains(id)
                : Set.of(only).contains(id);
            if (chosen) {
                run(id, scenario);
            }
        });
    }

    private static void run(String id, Scenario scenario) {
        remark = "";
        long started = System.nanoTime();
        try {
            scenario.run();
            long elapsedMs = (System.nanoTime() - started) / 1_000_000;
            outcome(id, "passed", remark.isEmpty() ? elapsedMs + " ms" : remark);
        } catch (Skipped reason) {
            outcome(id, "skipped", reason.getMessage());
        } catch (Throwable failure) {
            failure.printStackTrace();
            outcome(id, "failed", failure.toString());
        }
    }

    private static void outcome(String id, String outcome, String detail) {
        print("{\"scenario\": " + quoted(id) + ", \"outcome\": " + quoted(outcome)
            + ", \"detail\": " + quoted(detail) + "}");
    }

    static void control(String what) {
        print("{\"control\": " + quoted(what) + "}");
    }

    private static void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
