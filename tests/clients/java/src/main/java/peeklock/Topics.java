package peeklock;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Topics, subscriptions, and the rules between them. */
final class Topics {
    private Topics() {
    }

    static void add(Report report) {
        report.add("topic-true-filter", Topics::trueFilter);
        report.add("topic-sql-filter", Topics::sqlFilter);
        report.add("topic-correlation-filter", Topics::correlationFilter);
        report.add("rule-management", Topics::ruleManagement);
    }

    private static ServiceBusReceiverClient receiver(String topic, String subscription) {
        return Client.builder().receiver().topicName(topic).subscriptionName(subscription).buildClient();
    }

    private static void send(String topic, ServiceBusMessage... messages) {
        try (ServiceBusSenderClient sender = Client.builder().sender().topicName(topic).buildClient()) {
            sender.sendMessages(List.of(messages));
        }
    }

    private static ServiceBusMessage coloured(String colour, int size) {
        ServiceBusMessage message = new ServiceBusMessage(colour + " " + size).setSubject(colour);
        message.getApplicationProperties().put("size", size);
        return message;
    }

    private static void expect(String topic, String subscription, String... texts) {
        try (ServiceBusReceiverClient receiver = receiver(topic, subscription)) {
            List<ServiceBusReceivedMessage> received = Client.receive(receiver, texts.length);
            Expect.equal(List.of(texts), Client.bodies(received));
            received.forEach(receiver::complete);
            Client.nothingComes(receiver);
        }
    }

    private static void trueFilter() {
        String topic = Broker.topic();
        String first = Broker.subscription(topic);
        String second = Broker.subscription(topic);
        send(topic, coloured("red", 1), coloured("blue", 2));
        expect(topic, first, "red 1", "blue 2");
        expect(topic, second, "red 1", "blue 2");
    }

    private static void sqlFilter() {
        String topic = Broker.topic();
        String subscription = Broker.subscription(topic);
        Broker.rule(topic, subscription,
            "<Filter i:type=\"SqlFilter\"><SqlExpression>sys.Label = 'red' AND size &gt; 5</SqlExpression>"
                + "</Filter><Action i:type=\"SqlRuleAction\">"
                + "<SqlExpression>SET priority = size * 2</SqlExpression></Action>");
        send(topic, coloured("red", 1), coloured("red", 9), coloured("blue", 9));
        try (ServiceBusReceiverClient receiver = receiver(topic, subscription)) {
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            Expect.equal("red 9", message.getBody().toString());
            Expect.equal("18", message.getApplicationProperties().get("priority").toString());
            Client.nothingComes(receiver);
        }
    }

    private static void correlationFilter() {
        String topic = Broker.topic();
        String subscription = Broker.subscription(topic);
        Broker.rule(topic, subscription,
            "<Filter i:type=\"CorrelationFilter\"><Label>blue</Label></Filter>");
        send(topic, coloured("red", 1), coloured("blue", 2));
        expect(topic, subscription, "blue 2");
    }

    /** Rules added, listed and removed over AMQP, with every kind of filter. */
    private static void ruleManagement() {
        String topic = Broker.topic();
        String subscription = Broker.subscription(topic);
        try (ServiceBusRuleManagerClient rules = Client.builder().ruleManager()
            .topicName(topic).subscriptionName(subscription).buildClient()) {
            CorrelationRuleFilter correlation = new CorrelationRuleFilter("c-1").setLabel("blue");
            correlation.getProperties().put("size", 3);
            rules.createRule("sql", new CreateRuleOptions(new SqlRuleFilter("size > 5"))
                .setAction(new SqlRuleAction("SET seen = 'yes'")));
            rules.createRule("correlation", new CreateRuleOptions(correlation));
            rules.createRule("nothing", new CreateRuleOptions(new FalseRuleFilter()));
            rules.deleteRule("$Default");
            Map<String, RuleProperties> listed = new TreeMap<>();
            rules.listRules().forEach(rule -> listed.put(rule.getName(), rule));
            Expect.equal(List.of("correlation", "nothing", "sql"), List.copyOf(listed.keySet()));
            Expect.equal("size > 5",
                ((SqlRuleFilter) listed.get("sql").getFilter()).getSqlExpression());
            Expect.equal("SET seen = 'yes'",
                ((SqlRuleAction) listed.get("sql").getAction()).getSqlExpression());
            CorrelationRuleFilter read = (CorrelationRuleFilter) listed.get("correlation").getFilter();
            Expect.equal("c-1", read.getCorrelationId());
            Expect.equal("blue", read.getLabel());
            Expect.equal(Map.of("size", "3"), read.getProperties()); // the SDK reads all as text
            Expect.that(listed.get("nothing").getFilter() instanceof FalseRuleFilter, "no false filter");
            send(topic, coloured("red", 9), coloured("blue", 3).setCorrelationId("c-1"),
                coloured("blue", 3));
            try (ServiceBusReceiverClient receiver = receiver(topic, subscription)) {
                List<ServiceBusReceivedMessage> received = Client.receive(receiver, 2);
                Expect.equal(List.of("red 9", "blue 3"), Client.bodies(received));
                Expect.equal("yes", received.get(0).getApplicationProperties().get("seen"));
                Client.nothingComes(receiver);
            }
            rules.deleteRule("sql");
            rules.createRule("all", new CreateRuleOptions(new TrueRuleFilter()));
            Expect.equal(3L, rules.listRules().stream().count());
        }
    }
}
