package peeklock;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerAsyncClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Every operation on entities that do not exist. */
final class Missing {
    private static final long AT_ONCE_NANOS = 5_000_000_000L;
    private static final Map<ServiceBusFailureReason, AmqpErrorCondition> CONDITIONS = Map.of(
        ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, AmqpErrorCondition.NOT_FOUND,
        ServiceBusFailureReason.UNAUTHORIZED, AmqpErrorCondition.UNAUTHORIZED_ACCESS);

    private Missing() {
    }

    static void operations() {
        String nowhere = Broker.name("nowhere");
        String topic = Broker.topic();
        OffsetDateTime due = OffsetDateTime.now().plusDays(1);
        ServiceBusClientBuilder builder = Client.builder();
        ServiceBusAdministrationClient admin = Administration.client();
        try (ServiceBusSenderClient sender = builder.sender().queueName(nowhere).buildClient();
            ServiceBusReceiverClient receiver = builder.receiver().queueName(nowhere).buildClient();
            ServiceBusReceiverClient subscriber = builder.receiver().topicName(topic)
                .subscriptionName("nowhere").buildClient();
            ServiceBusSessionReceiverClient sessions =
                builder.sessionReceiver().queueName(nowhere).buildClient();
            ServiceBusRuleManagerAsyncClient rules = builder.ruleManager().topicName(topic)
                .subscriptionName("nowhere").buildAsyncClient()) {
            ServiceBusMessage message = new ServiceBusMessage("x");
            Map<String, Report.Scenario> calls = new LinkedHashMap<>();
            calls.put("send", () -> sender.sendMessage(message));
            calls.put("schedule", () -> sender.scheduleMessage(message, due));
            calls.put("cancel", () -> sender.cancelScheduledMessage(1));
            calls.put("make a batch", sender::createMessageBatch);
            calls.put("receive", () -> receiver.receiveMessages(1, Client.WAIT).stream().toList());
            calls.put("peek", receiver::peekMessage);
            calls.put("fetch", () -> receiver.receiveDeferredMessage(1));
            calls.put("receive from a subscription",
                () -> subscriber.receiveMessages(1, Client.WAIT).stream().toList());
            calls.put("peek in a subscription", subscriber::peekMessage);
            calls.put("accept a session", () -> sessions.acceptSession("s"));
            calls.put("accept any session", sessions::acceptNextSession);
            calls.put("list rules", () -> rules.listRules().collectList().block(Client.WAIT));
            calls.put("create a rule", () -> rules.createRule("rule",
                new CreateRuleOptions(new SqlRuleFilter("a = 1"))).block(Client.WAIT));
            List<String> wrong = new ArrayList<>();
            calls.forEach((doing, call) -> {
                long began = System.nanoTime();
                try {
                    refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, call);
                } catch (AssertionError error) {
                    wrong.add(doing + ": " + error.getMessage());
                }
                if (System.nanoTime() - began > AT_ONCE_NANOS) {
                    wrong.add(doing + ": took too long");
                }
            });
            Expect.equal(List.of(), wrong);
        }
        for (Report.Scenario request : List.<Report.Scenario>of(
            () -> admin.getQueue(nowhere), () -> admin.getQueueRuntimeProperties(nowhere),
            () -> admin.deleteQueue(nowhere), () -> admin.getTopic(nowhere),
            () -> admin.deleteTopic(nowhere), () -> admin.getSubscription(topic, nowhere),
            () -> admin.createSubscription(nowhere, "sub"),
            () -> admin.getRule(topic, nowhere, "rule"),
            () -> admin.createRule(topic, "rule", nowhere))) {
            Expect.failure(ResourceNotFoundException.class, request);
        }
    }

    /** The SDK wraps some refusals in other exceptions; the reason is in one of their causes. */
    static void refused(ServiceBusFailureReason reason, Report.Scenario action) {
        Throwable error = Expect.failure(RuntimeException.class, action);
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ServiceBusException known && known.getReason() == reason
                || cause instanceof AmqpException amqp
                    && amqp.getErrorCondition() == CONDITIONS.get(reason)) {
                return;
            }
        }
        throw new AssertionError("expected " + reason + " but got " + error, error);
    }
}
