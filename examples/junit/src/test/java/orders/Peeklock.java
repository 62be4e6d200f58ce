package orders;

import com.azure.json.JsonProviders;
import com.azure.json.JsonReader;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;

/**
 * The control API of a broker, as far as the tests need it: a namespace for each test, waiting, the clock.
 *
 * <p>The broker runs in a container, or where PEEKLOCK_URL says, such as http://localhost:5300.
 */
final class Peeklock implements AutoCloseable {
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static String address;
    private static GenericContainer<?> container;

    final String connectionString;
    private final String name;

    /** Creates a namespace with its own entities, key and clock. Tests in parallel do not see each other's messages. */
    Peeklock(String topology) {
        Map<String, Object> created = request("POST", "/namespaces", "{\"topology\": " + topology + "}");
        name = (String) created.get("name");
        String given = (String) created.get("connection_string");
        connectionString = container == null ? given : given.replaceFirst(
            "Endpoint=sb://[^;]*", "Endpoint=sb://" + container.getHost() + ":" + container.getMappedPort(5672));
    }

    /** Waits until a condition holds, without polling: see docs/control-api.md. */
    void waitUntil(String condition) {
        request("POST", "/namespaces/" + name + "/wait", "{\"conditions\": [" + condition + "]}");
    }

    void advanceClock(long seconds) {
        request("POST", "/namespaces/" + name + "/clock/advance", "{\"seconds\": " + seconds + "}");
    }

    @Override
    public void close() {
        request("DELETE", "/namespaces/" + name, "");
    }

    private static Map<String, Object> request(String method, String path, String body) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(address() + "/$peeklock/v1" + path))
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .build();
        try {
            HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() >= 400) {
                throw new AssertionError(method + " " + path + ": " + answer.body());
            }
            try (JsonReader reader = JsonProviders.createReader(answer.body())) {
                return reader.readMap(JsonReader::readUntyped);
            }
        } catch (IOException | InterruptedException error) {
            throw new AssertionError(method + " " + path, error);
        }
    }

    /** Starts the container with the first request. Testcontainers removes it when the tests have ended. */
    private static synchronized String address() {
        if (address == null) {
            address = System.getenv("PEEKLOCK_URL");
        }
        if (address == null) {
            container = new GenericContainer<>("peeklock:latest")
                .withCommand("serve", "--storage", "memory:")
                .withExposedPorts(5672, 5300)
                .waitingFor(Wait.forHttp("/health").forPort(5300));
            container.start();
            address = "http://" + container.getHost() + ":" + container.getMappedPort(5300);
        }
        return address;
    }
}
