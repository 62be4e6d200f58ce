package peeklock;

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.io.IOException;
import java.time.Duration;
import java.time.OffsetDateTime;

/** Message locks: kept, kept by the SDK, lost. */
final class Locks {
    private Locks() {
    }

    static void add(Report report) {
        report.add("renew-lock", Locks::renew);
        report.add("concurrent-management", Concurrency::management);
        report.add("auto-renew-lock", Locks::autoRenew);
        report.add("auto-renew-ten", Concurrency::autoRenewTen);
        report.add("lock-lost", Locks::lost);
        report.add("backup-settlement", Concurrency::backupSettlement);
    }

    private static void renew() {
        String queue = Broker.queue("LockDuration", "PT30S");
        Client.send(queue, "kept");
        try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            OffsetDateTime before = message.getLockedUntil();
            Broker.advance(20);
            OffsetDateTime after = receiver.renewMessageLock(message);
            Expect.that(Duration.between(before, after).toSeconds() >= 19, before + " to " + after);
            Broker.advance(20);
            receiver.complete(message);
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }

    /** The SDK renews by its own clock, so here the shortest lock must be outlived in real time. */
    private static void autoRenew() throws IOException {
        Broker.restart(); // its clock may have been moved
        String queue = Broker.queue("LockDuration", "PT5S");
        Client.send(queue, "kept");
        try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            Throwable[] failure = new Throwable[1];
            receiver.renewMessageLock(message, Duration.ofSeconds(60), error -> failure[0] = error);
            try (ServiceBusReceiverClient rival = Client.receiver(queue)) {
                Expect.equal(0L, rival.receiveMessages(1, Duration.ofSeconds(7)).stream().count());
            }
            Expect.equal(null, failure[0]);
            receiver.complete(message);
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }

    private static void lost() {
        String queue = Broker.queue("LockDuration", "PT30S");
        Client.send(queue, "lost");
        try (ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            Broker.advance(31);
            Client.refused(ServiceBusFailureReason.MESSAGE_LOCK_LOST,
                () -> receiver.complete(message));
            Client.refused(ServiceBusFailureReason.MESSAGE_LOCK_LOST,
                () -> receiver.renewMessageLock(message));
            ServiceBusReceivedMessage again = Client.receiveOne(receiver);
            Expect.equal(1L, again.getDeliveryCount());
            receiver.complete(again);
        }
    }
}
