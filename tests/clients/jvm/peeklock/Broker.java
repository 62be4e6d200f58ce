package peeklock;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The broker under test as the runner announced it: where it is, its entities, its clock. */
public final class Broker {
    private static final String ATOM = "http://www.w3.org/2005/Atom";
    private static final String SERVICE_BUS =
        "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final AtomicInteger NUMBERS = new AtomicInteger();

    /** As the folder is called in which the runner starts the program. */
    public static final String CLIENT = Path.of("").toAbsolutePath().getFileName().toString();
    public static final String HOST = System.getenv().getOrDefault("PEEKLOCK_HOST", "127.0.0.1");
    public static final int AMQP_PORT = Integer.parseInt(variable("PEEKLOCK_AMQP_PORT"));
    public static final int HTTP_PORT = Integer.parseInt(variable("PEEKLOCK_HTTP_PORT"));

    private Broker() {
    }

    /** A variable the runner sets. */
    public static String variable(String name) {
        String value = System.getenv(name);
        if (value == null) {
            throw new IllegalStateException(name + " is not set: start this through the runner");
        }
        return value;
    }

    /** An entity name nobody else uses. */
    public static String name(String kind) {
        return variable("PEEKLOCK_RUN") + "-" + CLIENT + "-" + kind + "-" + NUMBERS.incrementAndGet();
    }

    /** Create a queue; properties in pairs, in the order the description has them. */
    public static String queue(String... properties) {
        String name = name("queue");
        put(name, "QueueDescription", elements(properties));
        return name;
    }

    public static String topic(String... properties) {
        String name = name("topic");
        put(name, "TopicDescription", elements(properties));
        return name;
    }

    public static String subscription(String topic, String... properties) {
        String name = name("subscription");
        put(topic + "/Subscriptions/" + name, "SubscriptionDescription", elements(properties));
        return name;
    }

    /** Replace the rule that lets everything pass by one with this filter. */
    public static void rule(String topic, String subscription, String filter) {
        String rules = topic + "/Subscriptions/" + subscription + "/Rules/";
        put(rules + "wanted", "RuleDescription", filter + "<Name>wanted</Name>");
        expect(200, request("DELETE", rules + "$Default", null));
    }

    private static String elements(String... properties) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < properties.length; i += 2) {
            text.append('<').append(properties[i]).append('>').append(properties[i + 1])
                .append("</").append(properties[i]).append('>');
        }
        return text.toString();
    }

    /** Create an entity at a path of its own. */
    public static void put(String path, String kind, String content) {
        expect(201, request("PUT", path,
            "<entry xmlns=\"" + ATOM + "\"><content type=\"application/xml\"><" + kind + " xmlns=\""
                + SERVICE_BUS + "\" xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">" + content
                + "</" + kind + "></content></entry>"));
    }

    /** Number of active messages, as the administration API counts them. */
    public static int activeMessages(String path) {
        HttpResponse<String> answer = request("GET", path, null);
        expect(200, answer);
        Matcher count = Pattern.compile("ActiveMessageCount>(\\d+)<").matcher(answer.body());
        if (!count.find()) {
            throw new AssertionError("no message count in " + answer.body());
        }
        return Integer.parseInt(count.group(1));
    }

    /** Make operations fail (docs/control-api.md, Faults); the name of the rule. */
    public static String fault(String rule) {
        HttpResponse<String> answer = send(HttpRequest.newBuilder(uri("$peeklock/v1/faults"))
            .POST(HttpRequest.BodyPublishers.ofString(rule)));
        expect(201, answer);
        Matcher name = Pattern.compile("\"name\": \"([^\"]+)\"").matcher(answer.body());
        Expect.that(name.find(), "no name in " + answer.body());
        return name.group(1);
    }

    /** How often a rule has acted. */
    public static int hits(String name) {
        HttpResponse<String> answer = send(HttpRequest.newBuilder(uri("$peeklock/v1/faults/" + name)));
        expect(200, answer);
        Matcher hits = Pattern.compile("\"hits\": (\\d+)").matcher(answer.body());
        Expect.that(hits.find(), "no hits in " + answer.body());
        return Integer.parseInt(hits.group(1));
    }

    /** Number of connections the broker has at present. */
    public static int connections() {
        Matcher count = Pattern.compile("(?m)^peeklock_connections (\\d+)")
            .matcher(send(HttpRequest.newBuilder(uri("metrics"))).body());
        if (!count.find()) {
            throw new AssertionError("no connections are counted in /metrics");
        }
        return Integer.parseInt(count.group(1));
    }

    /** Move the broker's clock, which carries locks, schedules and times to live with it. */
    public static void advance(long seconds) {
        expect(200, send(HttpRequest.newBuilder(uri("$peeklock/clock"))
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString("{\"advance_ms\": " + seconds * 1000 + "}"))));
    }

    private static HttpResponse<String> request(String method, String path, String body) {
        HttpRequest.BodyPublisher publisher = body == null
            ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body);
        return send(HttpRequest.newBuilder(uri(path + "?api-version=2021-05"))
            .method(method, publisher));
    }

    private static URI uri(String path) {
        return URI.create("http://" + HOST + ":" + HTTP_PORT + "/" + path);
    }

    private static HttpResponse<String> send(HttpRequest.Builder request) {
        try {
            return HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
        } catch (IOException error) {
            throw new IllegalStateException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(error);
        }
    }

    private static void expect(int status, HttpResponse<String> answer) {
        if (answer.statusCode() != status) {
            throw new AssertionError(
                answer.request().uri() + " gave " + answer.statusCode() + ": " + answer.body());
        }
    }

    /** Have the runner restart the broker: what it stored is kept, its clock shows the time. */
    public static void restart() throws IOException {
        Report.control("restart");
        StringBuilder answer = new StringBuilder();
        for (int c = System.in.read(); c != '\n' && c != -1; c = System.in.read()) {
            answer.append((char) c);
        }
        if (!answer.toString().trim().equals("restarted")) {
            throw new AssertionError("the runner answered '" + answer + "'");
        }
    }

    /** The parts of a connection string by their names. */
    public static Map<String, String> parts(String connectionString) {
        Map<String, String> parts = new LinkedHashMap<>();
        for (String part : connectionString.split(";")) {
            int equals = part.indexOf('=');
            if (equals > 0) {
                parts.put(part.substring(0, equals), part.substring(equals + 1));
            }
        }
        return parts;
    }
}
