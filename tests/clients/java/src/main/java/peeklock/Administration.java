package peeklock;

import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.SubscriptionRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import com.azure.messaging.servicebus.administration.models.TopicRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import reactor.core.publisher.Mono;

/** Entities made, read, changed and removed by the administration client. */
final class Administration {
    private Administration() {
    }

    static void add(Report report) {
        report.add("admin-queue-crud", Administration::queues);
        report.add("admin-topic-crud", Administration::topics);
        report.add("admin-subscription-crud", Administration::subscriptions);
        report.add("admin-rule-crud", Administration::rules);
        report.add("rule-value-precision", Administration::ruleValuePrecision);
        report.add("admin-runtime-properties", Administration::runtimeProperties);
    }

    /** The client always asks https on port 443: this sends it to the broker's port instead. */
    private record ToBroker(int port) implements HttpPipelinePolicy {
        @Override
        public Mono<HttpResponse> process(HttpPipelineCallContext call, HttpPipelineNextPolicy next) {
            UrlBuilder url = UrlBuilder.parse(call.getHttpRequest().getUrl());
            call.getHttpRequest().setUrl(url.setPort(port).toString());
            return next.process();
        }
    }

    static ServiceBusAdministrationClient client() {
        return client(Broker.variable("PEEKLOCK_ADMIN_CONNECTION_STRING"), Broker.HTTP_PORT);
    }

    static ServiceBusAdministrationClient client(String connectionString, int port) {
        return new ServiceBusAdministrationClientBuilder()
            .connectionString(connectionString)
            .addPolicy(new ToBroker(port))
            .buildClient();
    }

    private static void queues() {
        ServiceBusAdministrationClient client = client();
        Expect.that(client.getNamespaceProperties().getName() != null, "the namespace has no name");
        String name = Broker.name("queue");
        String other = Broker.name("queue");
        Expect.that(!client.getQueueExists(name), name + " exists already");
        Expect.failure(ResourceNotFoundException.class, () -> client.getQueue(name));
        client.createQueue(other);
        QueueProperties created = client.createQueue(name, new CreateQueueOptions()
            .setLockDuration(Duration.ofSeconds(45)).setMaxDeliveryCount(7).setSessionRequired(true)
            .setDefaultMessageTimeToLive(Duration.ofDays(3)).setDuplicateDetectionRequired(true)
            .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(5))
            .setDeadLetteringOnMessageExpiration(true).setForwardDeadLetteredMessagesTo(other)
            .setAutoDeleteOnIdle(Duration.ofHours(9)).setUserMetadata("made by <java> & co"));
        for (QueueProperties queue : List.of(created, client.getQueue(name))) {
            Expect.equal(name, queue.getName());
            Expect.equal(Duration.ofSeconds(45), queue.getLockDuration());
            Expect.equal(7, queue.getMaxDeliveryCount());
            Expect.equal(true, queue.isSessionRequired());
            Expect.equal(Duration.ofDays(3), queue.getDefaultMessageTimeToLive());
            Expect.equal(true, queue.isDuplicateDetectionRequired());
            Expect.equal(Duration.ofMinutes(5), queue.getDuplicateDetectionHistoryTimeWindow());
            Expect.equal(true, queue.isDeadLetteringOnMessageExpiration());
            Expect.that(queue.getForwardDeadLetteredMessagesTo().endsWith("/" + other),
                "forwards to " + queue.getForwardDeadLetteredMessagesTo());
            Expect.equal(Duration.ofHours(9), queue.getAutoDeleteOnIdle());
            Expect.equal("made by <java> & co", queue.getUserMetadata());
            Expect.equal(EntityStatus.ACTIVE, queue.getStatus());
        }
        Expect.failure(ResourceExistsException.class, () -> client.createQueue(name));
        QueueProperties changed = client.updateQueue(client.getQueue(name).setMaxDeliveryCount(3)
            .setStatus(EntityStatus.SEND_DISABLED).setForwardDeadLetteredMessagesTo(null));
        Expect.equal(3, changed.getMaxDeliveryCount());
        Expect.equal(EntityStatus.SEND_DISABLED, client.getQueue(name).getStatus());
        Expect.equal(null, client.getQueue(name).getForwardDeadLetteredMessagesTo());
        try (ServiceBusSenderClient sender = Client.sender(name)) {
            Client.refused(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED,
                () -> sender.sendMessage(new ServiceBusMessage("x")));
        }
        List<String> listed = client.listQueues().stream().map(QueueProperties::getName).toList();
        Expect.that(listed.containsAll(List.of(name, other)), listed + " lacks one of ours");
        client.deleteQueue(name);
        Expect.that(!client.getQueueExists(name), name + " is still there");
        Expect.failure(ResourceNotFoundException.class, () -> client.deleteQueue(name));
    }

    private static void topics() {
        ServiceBusAdministrationClient client = client();
        String name = Broker.name("topic");
        Expect.that(!client.getTopicExists(name), name + " exists already");
        TopicProperties created = client.createTopic(name, new CreateTopicOptions()
            .setDefaultMessageTimeToLive(Duration.ofHours(4)).setDuplicateDetectionRequired(true)
            .setUserMetadata("news"));
        for (TopicProperties topic : List.of(created, client.getTopic(name))) {
            Expect.equal(name, topic.getName());
            Expect.equal(Duration.ofHours(4), topic.getDefaultMessageTimeToLive());
            Expect.equal(true, topic.isDuplicateDetectionRequired());
            Expect.equal("news", topic.getUserMetadata());
        }
        client.updateTopic(created.setDefaultMessageTimeToLive(Duration.ofHours(5)));
        Expect.equal(Duration.ofHours(5), client.getTopic(name).getDefaultMessageTimeToLive());
        Expect.that(client.listTopics().stream().anyMatch(topic -> topic.getName().equals(name)),
            "the topic is not listed");
        client.deleteTopic(name);
        Expect.that(!client.getTopicExists(name), name + " is still there");
    }

    private static void subscriptions() {
        ServiceBusAdministrationClient client = client();
        String topic = Broker.name("topic");
        client.createTopic(topic);
        Expect.that(!client.getSubscriptionExists(topic, "s"), "the subscription exists already");
        SubscriptionProperties created = client.createSubscription(topic, "s", "red-only",
            new CreateSubscriptionOptions().setLockDuration(Duration.ofSeconds(50))
                .setMaxDeliveryCount(4).setDeadLetteringOnMessageExpiration(true),
            new CreateRuleOptions(new SqlRuleFilter("sys.Label = 'red'")));
        for (SubscriptionProperties one : List.of(created, client.getSubscription(topic, "s"))) {
            Expect.equal("s", one.getSubscriptionName());
            Expect.equal(topic, one.getTopicName());
            Expect.equal(Duration.ofSeconds(50), one.getLockDuration());
            Expect.equal(4, one.getMaxDeliveryCount());
            Expect.equal(true, one.isDeadLetteringOnMessageExpiration());
        }
        Expect.equal(List.of("red-only"),
            client.listRules(topic, "s").stream().map(RuleProperties::getName).toList());
        client.updateSubscription(created.setMaxDeliveryCount(5));
        Expect.equal(5, client.getSubscription(topic, "s").getMaxDeliveryCount());
        client.createSubscription(topic, "t");
        Expect.equal(List.of("s", "t"), client.listSubscriptions(topic).stream()
            .map(SubscriptionProperties::getSubscriptionName).sorted().toList());
        client.deleteSubscription(topic, "s");
        Expect.that(!client.getSubscriptionExists(topic, "s"), "the subscription is still there");
    }

    private static void rules() {
        ServiceBusAdministrationClient client = client();
        String topic = Broker.name("topic");
        client.createTopic(topic);
        client.createSubscription(topic, "s");
        CorrelationRuleFilter correlation = new CorrelationRuleFilter("c-1")
            .setLabel("l").setMessageId("m").setReplyTo("r").setContentType("text/plain");
        Map<String, Object> properties = Map.of("text", "x", "whole", 3, "large", 5_000_000_000L,
            "flag", true, "real", 1.5, "when", OffsetDateTime.parse("2026-01-02T03:04:05Z"));
        correlation.getProperties().putAll(properties);
        client.createRule(topic, "correlation", "s", new CreateRuleOptions(correlation));
        SqlRuleFilter sql = new SqlRuleFilter("size > @smallest");
        sql.getParameters().put("@smallest", 5);
        client.createRule(topic, "sql", "s",
            new CreateRuleOptions(sql).setAction(new SqlRuleAction("SET seen = 1")));
        Map<String, RuleProperties> listed = client.listRules(topic, "s").stream()
            .collect(Collectors.toMap(RuleProperties::getName, rule -> rule));
        Expect.equal(java.util.Set.of("$Default", "correlation", "sql"), listed.keySet());
        Expect.that(listed.get("$Default").getFilter() instanceof TrueRuleFilter, "$Default is odd");
        CorrelationRuleFilter read = (CorrelationRuleFilter) listed.get("correlation").getFilter();
        Expect.equal("c-1", read.getCorrelationId());
        Expect.equal("text/plain", read.getContentType());
        Expect.equal(properties.keySet(), read.getProperties().keySet());
        properties.forEach( // the SDK reads all as text
            (key, value) -> Expect.equal(value.toString(), read.getProperties().get(key)));
        RuleProperties withAction = client.getRule(topic, "s", "sql");
        Expect.equal("SET seen = 1", ((SqlRuleAction) withAction.getAction()).getSqlExpression());
        Expect.equal(Map.of("@smallest", "5"), ((SqlRuleFilter) withAction.getFilter()).getParameters());
        client.updateRule(topic, "s", withAction.setFilter(new SqlRuleFilter("size > 9")));
        Expect.equal("size > 9",
            ((SqlRuleFilter) client.getRule(topic, "s", "sql").getFilter()).getSqlExpression());
        client.deleteRule(topic, "s", "sql");
        Expect.failure(ResourceNotFoundException.class, () -> client.getRule(topic, "s", "sql"));
    }

    private static void runtimeProperties() {
        ServiceBusAdministrationClient client = client();
        String queue = Broker.queue();
        try (ServiceBusSenderClient sender = Client.sender(queue);
            ServiceBusReceiverClient receiver = Client.receiver(queue)) {
            sender.sendMessages(Client.messages("a", "b", "c"));
            sender.scheduleMessage(new ServiceBusMessage("d"), OffsetDateTime.now().plusDays(30));
            receiver.deadLetter(Client.receiveOne(receiver));
        }
        QueueRuntimeProperties ofQueue = client.getQueueRuntimeProperties(queue);
        Expect.equal(List.of(2L, 1L, 1L, 4L), Stream.of(ofQueue.getActiveMessageCount(),
            ofQueue.getDeadLetterMessageCount(), ofQueue.getScheduledMessageCount(),
            ofQueue.getTotalMessageCount()).map(Number::longValue).toList());
        Expect.that(ofQueue.getSizeInBytes() > 0, "four messages take no room");
        Expect.that(ofQueue.getCreatedAt().isAfter(OffsetDateTime.now().minusDays(1)), "no birthday");

        String topic = Broker.topic();
        String subscription = Broker.subscription(topic);
        try (ServiceBusSenderClient sender =
            Client.builder().sender().topicName(topic).buildClient()) {
            sender.sendMessages(Client.messages("a", "b"));
        }
        TopicRuntimeProperties ofTopic = client.getTopicRuntimeProperties(topic);
        Expect.equal(1, ofTopic.getSubscriptionCount());
        SubscriptionRuntimeProperties ofSubscription =
            client.getSubscriptionRuntimeProperties(topic, subscription);
        Expect.equal(2, ofSubscription.getActiveMessageCount());
        Expect.equal(2L, ofSubscription.getTotalMessageCount());
    }

    /** The SDK writes every value as a text and shows the text of every value. */
    private static void ruleValuePrecision() {
        ServiceBusAdministrationClient client = client();
        String topic = Broker.topic();
        String subscription = Broker.subscription(topic);
        Map<String, String> values = Map.of(
            "dateTime", "2030-01-02T03:04:05.1234567Z",
            "duration", "PT1.1234567S",
            "double", "-INF",
            "long", "9007199254740993");
        String elements = values.entrySet().stream().map(value ->
            "<KeyValueOfstringanyType><Key>" + value.getKey() + "</Key><Value i:type=\"d:"
                + value.getKey() + "\" xmlns:d=\"http://www.w3.org/2001/XMLSchema\">" + value.getValue()
                + "</Value></KeyValueOfstringanyType>").collect(Collectors.joining());
        Broker.rule(topic, subscription, "<Filter i:type=\"CorrelationFilter\"><Properties>" + elements
            + "</Properties></Filter>");
        CorrelationRuleFilter read =
            (CorrelationRuleFilter) client.getRule(topic, subscription, "wanted").getFilter();
        Expect.equal(values, read.getProperties());
    }
}
