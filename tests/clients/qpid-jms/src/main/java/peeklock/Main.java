package peeklock;

import java.util.Set;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Every scenario, in the order of the list that all clients share. */
public final class Main {
    private static final Set<String> SHORT_LIST = Set.of("connect-emulator-string", "connect-tls",
        "send-one", "complete", "dead-letter-and-read-back", "session-named", "topic-sql-filter",
        "admin-queue-crud");
    private static final String NO_SESSIONS = "JMS has no way to ask for a session";
    private static final String NO_ADMINISTRATION = "JMS does not administer";

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        Trust.theBrokersAuthority();
        Report.versions("qpid-jms-client", JmsConnectionFactory.class);
        Report report = new Report();
        if (arguments.length > 0 && arguments[0].equals("read-types")) {
            report.add("read-types", () -> Types.read(arguments[1]));
            report.run(Set.of("read-types"));
            System.exit(0);
        }
        Connecting.add(report);
        Sending.add(report);
        Receiving.add(report);
        Settling.add(report);
        for (String id : new String[] {"full-batch", "purge-empty", "concurrent-management"}) {
            report.skip(id, "JMS has no way to say it");
        }
        for (String id : new String[] {
            "renew-lock", "auto-renew-lock", "auto-renew-ten", "backup-settlement"}) {
            report.skip(id, "JMS knows no lock");
        }
        Settling.addLocks(report);
        report.skip("schedule", "needs a JMS delivery delay, which the broker does not offer");
        report.skip("cancel-scheduled", "JMS cannot cancel");
        for (String id : new String[] {"session-named", "session-next-available",
            "session-two-holders", "session-state", "session-renew", "session-lock-lost",
            "session-none-available", "session-id-case", "session-deferred-after-renewals"}) {
            report.skip(id, NO_SESSIONS);
        }
        Topics.add(report);
        report.skip("rule-management", NO_ADMINISTRATION);
        Transactions.add(report);
        for (String id : new String[] {"admin-queue-crud", "admin-topic-crud",
            "admin-subscription-crud", "admin-rule-crud", "rule-value-precision",
            "admin-runtime-properties", "forwarding-round-trip"}) {
            report.skip(id, NO_ADMINISTRATION);
        }
        report.skip("duplicate-detection", "JMS providers choose message ids, never the same twice");
        Features.add(report);
        Types.add(report);
        Errors.add(report);
        report.skip("error-session-held", NO_SESSIONS);
        Endings.add(report);
        report.run(SHORT_LIST, arguments);
        System.exit(0);
    }
}
