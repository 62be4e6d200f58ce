package peeklock;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import java.util.Set;

/** Every scenario, in the order of the list that all clients share. */
public final class Main {
    private static final Set<String> SHORT_LIST = Set.of("connect-emulator-string", "connect-tls",
        "send-one", "complete", "dead-letter-and-read-back", "session-named", "topic-sql-filter",
        "admin-queue-crud");

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        Trust.theBrokersAuthority();
        Report.versions("azure-messaging-servicebus", ServiceBusClientBuilder.class);
        Report report = new Report();
        if (arguments.length > 0 && arguments[0].equals("read-types")) {
            report.add("read-types", () -> Types.read(arguments[1]));
            report.run(Set.of("read-types"));
            System.exit(0);
        }
        if (arguments.length > 0 && arguments[0].equals("faults")) {
            Faults.add(report);
            report.run(Set.of());
            System.exit(0);
        }
        Connecting.add(report);
        Sending.add(report);
        Receiving.add(report);
        Settling.add(report);
        Locks.add(report);
        Scheduling.add(report);
        Sessions.add(report);
        Topics.add(report);
        Transactions.add(report);
        Administration.add(report);
        Features.add(report);
        Types.add(report);
        Errors.add(report);
        Endings.add(report);
        report.run(SHORT_LIST, arguments);
        System.exit(0); // the SDK's schedulers are daemons, its HTTP client's threads are not
    }
}
