package peeklock;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.Collections;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/** Ordered streams with one holder each. */
final class Sessions {
    private Sessions() {
    }

    static void add(Report report) {
        report.add("session-named", Sessions::named);
        report.add("session-next-available", Sessions::nextAvailable);
        report.add("session-two-holders", Sessions::twoHolders);
        report.add("session-state", Sessions::state);
        report.add("session-renew", Sessions::renew);
        report.add("session-lock-lost", Sessions::lockLost);
        report.add("session-none-available", Sessions::noneAvailable);
        report.add("session-id-case", Sessions::idCase);
        report.add("session-deferred-after-renewals", Sessions::deferredAfterRenewals);
    }

    private static String queue() {
        return Broker.queue("LockDuration", "PT30S", "RequiresSession", "true");
    }

    private static void send(String queue, String... sessionsAndTexts) {
        try (ServiceBusSenderClient sender = Client.sender(queue)) {
            for (String one : sessionsAndTexts) {
                sender.sendMessage(Client.inSession(one.substring(0, 1), one));
            }
        }
    }

    private static ServiceBusSessionReceiverClient sessions(String queue) {
        return Client.builder().sessionReceiver().queueName(queue).buildClient();
    }

    private static void named() {
        String queue = queue();
        send(queue, "a1", "b1", "a2", "b2");
        try (ServiceBusSessionReceiverClient sessions = sessions(queue);
            ServiceBusReceiverClient receiver = sessions.acceptSession("b")) {
            Expect.equal("b", receiver.getSessionId());
            List<ServiceBusReceivedMessage> messages = Client.receive(receiver, 2);
            Expect.equal(List.of("b1", "b2"), Client.bodies(messages));
            Expect.equal("b", messages.get(0).getSessionId());
            receiver.abandon(messages.get(0));
            ServiceBusReceivedMessage again = Client.receiveOne(receiver);
            Expect.equal("b1", again.getBody().toString());
            receiver.complete(again);
            receiver.complete(messages.get(1));
            Client.nothingComes(receiver);
        }
        Expect.equal(2, Broker.activeMessages(queue));
    }

    private static void nextAvailable() {
        String queue = queue();
        send(queue, "a1", "b1");
        List<String> seen = new ArrayList<>();
        try (ServiceBusSessionReceiverClient sessions = sessions(queue);
            ServiceBusReceiverClient first = sessions.acceptNextSession();
            ServiceBusReceiverClient second = sessions.acceptNextSession()) {
            for (ServiceBusReceiverClient receiver : List.of(first, second)) {
                ServiceBusReceivedMessage message = Client.receiveOne(receiver);
                Expect.equal(receiver.getSessionId(), message.getSessionId());
                seen.add(message.getBody().toString());
                receiver.complete(message);
            }
        }
        Collections.sort(seen);
        Expect.equal(List.of("a1", "b1"), seen);
    }

    /** Two sessions at a time, each in its order; a third is taken up when one falls idle. */
    static void processor() {
        String queue = queue();
        Map<String, List<String>> done = Collections.synchronizedMap(new TreeMap<>());
        List<Throwable> errors = Collections.synchronizedList(new ArrayList<>());
        try (ServiceBusProcessorClient processor = Client.builder().sessionProcessor()
            .queueName(queue).maxConcurrentSessions(2).sessionIdleTimeout(Duration.ofSeconds(1))
            .processMessage(context -> done
                .computeIfAbsent(context.getMessage().getSessionId(),
                    id -> Collections.synchronizedList(new ArrayList<>()))
                .add(context.getMessage().getBody().toString()))
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient()) {
            processor.start();
            send(queue, "a1", "b1", "c1", "a2", "b2", "c2");
            Map<String, List<String>> expected = Map.of("a", List.of("a1", "a2"),
                "b", List.of("b1", "b2"), "c", List.of("c1", "c2"));
            Expect.soon(20, "all three sessions", () -> expected.equals(done));
            Expect.soon(10, "completion", () -> Broker.activeMessages(queue) == 0);
        }
        Expect.equal(List.of(), errors);
    }

    /** Each session goes to its holder only; a held one cannot be taken. */
    private static void twoHolders() {
        String queue = queue();
        try (ServiceBusSessionReceiverClient sessions = sessions(queue);
            ServiceBusSessionReceiverClient others = sessions(queue);
            ServiceBusReceiverClient a = sessions.acceptSession("a");
            ServiceBusReceiverClient b = others.acceptSession("b")) {
            send(queue, "a1", "b1", "a2", "b2");
            Expect.equal(List.of("a1", "a2"), Client.bodies(Client.receive(a, 2)));
            Expect.equal(List.of("b1", "b2"), Client.bodies(Client.receive(b, 2)));
        }
    }

    private static void state() {
        String queue = queue();
        byte[] state = {1, 0, (byte) 255};
        try (ServiceBusSessionReceiverClient sessions = sessions(queue)) {
            try (ServiceBusReceiverClient receiver = sessions.acceptSession("a")) {
                Expect.equal(null, receiver.getSessionState());
                receiver.setSessionState(state);
                Expect.equal(state, receiver.getSessionState());
            }
        }
        try (ServiceBusSessionReceiverClient sessions = sessions(queue);
            ServiceBusReceiverClient receiver = acceptFreed(sessions, "a")) {
            Expect.equal(state, receiver.getSessionState());
            receiver.setSessionState(null);
            Expect.equal(null, receiver.getSessionState());
        }
    }

    /** Closing a receiver does not wait for the broker's answer, so the session may be held yet. */
    private static ServiceBusReceiverClient acceptFreed(
        ServiceBusSessionReceiverClient sessions, String sessionId) {
        ServiceBusReceiverClient[] accepted = new ServiceBusReceiverClient[1];
        Expect.soon(10, "freeing the session", () -> {
            try {
                accepted[0] = sessions.acceptSession(sessionId);
            } catch (AmqpException error) {
                Expect.equal(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, error.getErrorCondition());
            }
            return accepted[0] != null;
        });
        return accepted[0];
    }

    private static void renew() {
        String queue = queue();
        send(queue, "a1");
        try (ServiceBusSessionReceiverClient sessions = sessions(queue);
            ServiceBusReceiverClient receiver = sessions.acceptSession("a")) {
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            OffsetDateTime first = receiver.renewSessionLock();
            Broker.advance(20);
            OffsetDateTime second = receiver.renewSessionLock();
            Expect.that(Duration.between(first, second).toSeconds() >= 19, first + " to " + second);
            Broker.advance(20);
            receiver.complete(message);
        }
        Expect.equal(0, Broker.activeMessages(queue));
    }

    private static void lockLost() {
        String queue = queue();
        send(queue, "a1");
        try (ServiceBusSessionReceiverClient sessions = sessions(queue)) {
            try (ServiceBusReceiverClient receiver = sessions.acceptSession("a")) {
                ServiceBusReceivedMessage message = Client.receiveOne(receiver);
                Broker.advance(31);
                Client.refused(ServiceBusFailureReason.SESSION_LOCK_LOST,
                    () -> receiver.complete(message));
                Client.refused(ServiceBusFailureReason.SESSION_LOCK_LOST,
                    () -> receiver.setSessionState(BinaryData.fromString("x").toBytes()));
            }
            try (ServiceBusReceiverClient receiver = sessions.acceptSession("a")) {
                Expect.equal(1L, Client.receiveOne(receiver).getDeliveryCount());
            }
        }
    }

    private static void noneAvailable() {
        String queue = queue();
        ServiceBusClientBuilder impatient =
            Client.builder().retryOptions(Client.patience(Duration.ofSeconds(2)));
        try (ServiceBusSessionReceiverClient sessions =
            impatient.sessionReceiver().queueName(queue).buildClient()) {
            IllegalStateException error =
                Expect.failure(IllegalStateException.class, sessions::acceptNextSession);
            Expect.that(error.getMessage().contains("com.microsoft:timeout"), error.getMessage());
            send(queue, "a1");
            try (ServiceBusReceiverClient receiver = sessions.acceptNextSession()) {
                Expect.equal("a", receiver.getSessionId());
            }
        }
    }

    private static void idCase() {
        String queue = queue();
        try (ServiceBusSenderClient sender = Client.sender(queue)) {
            for (String[] one : new String[][] {{"Order", "a"}, {"ORDER", "b"}, {"order", "c"}}) {
                sender.sendMessage(Client.inSession(one[0], one[1]));
            }
        }
        try (ServiceBusSessionReceiverClient sessions = sessions(queue);
            ServiceBusSessionReceiverClient others = sessions(queue)) {
            try (ServiceBusReceiverClient receiver = sessions.acceptSession("oRDER")) {
                Expect.equal("order", receiver.getSessionId().toLowerCase(Locale.ROOT));
                receiver.setSessionState(new byte[] {7});
                AmqpException error =
                    Expect.failure(AmqpException.class, () -> others.acceptSession("Order"));
                Expect.equal(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, error.getErrorCondition());
                List<ServiceBusReceivedMessage> messages = Client.receive(receiver, 3);
                Expect.equal(List.of("a", "b", "c"), Client.bodies(messages));
                messages.forEach(receiver::complete);
            }
            try (ServiceBusReceiverClient receiver = acceptFreed(sessions, "ORDER")) {
                Expect.equal(new byte[] {7}, receiver.getSessionState());
            }
        }
    }

    private static void deferredAfterRenewals() {
        String queue = queue();
        send(queue, "a early", "a late");
        try (ServiceBusSessionReceiverClient sessions = sessions(queue);
            ServiceBusReceiverClient receiver = sessions.acceptSession("a")) {
            List<ServiceBusReceivedMessage> deferred = Client.receive(receiver, 2);
            deferred.forEach(receiver::defer);
            ServiceBusReceivedMessage early =
                receiver.receiveDeferredMessage(deferred.get(0).getSequenceNumber());
            for (int round = 0; round < 3; round++) {
                Broker.advance(25);
                receiver.renewSessionLock();
            }
            receiver.complete(early);
            ServiceBusReceivedMessage late =
                receiver.receiveDeferredMessage(deferred.get(1).getSequenceNumber());
            Broker.advance(25);
            receiver.renewSessionLock();
            Broker.advance(25);
            receiver.complete(late);
            Expect.equal(null, receiver.peekMessage());
        }
    }
}
