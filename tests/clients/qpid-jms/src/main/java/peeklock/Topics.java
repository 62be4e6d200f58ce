package peeklock;

import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.Message;
import java.util.List;

/** Topics by their name, subscriptions as queues with an address. */
final class Topics {
    private Topics() {
    }

    static void add(Report report) {
        report.add("topic-true-filter", Topics::trueFilter);
        report.add("topic-sql-filter", Topics::sqlFilter);
        report.add("topic-correlation-filter", Topics::correlationFilter);
    }

    private static void send(JMSContext context, String topic, String colour, int size) {
        context.createProducer().setJMSType(colour).setProperty("size", size)
            .send(context.createTopic(topic), colour + " " + size);
    }

    private static JMSConsumer consumer(JMSContext context, String topic, String subscription) {
        return context.createConsumer(context.createQueue(topic + "/Subscriptions/" + subscription));
    }

    private static void trueFilter() throws Exception {
        String topic = Broker.topic();
        String first = Broker.subscription(topic);
        String second = Broker.subscription(topic);
        try (JMSContext context = Client.connect()) {
            send(context, topic, "red", 1);
            send(context, topic, "blue", 2);
            for (String subscription : List.of(first, second)) {
                Expect.equal(List.of("red 1", "blue 2"),
                    Client.receive(consumer(context, topic, subscription), 2));
            }
        }
    }

    private static void sqlFilter() throws Exception {
        String topic = Broker.topic();
        String subscription = Broker.subscription(topic);
        Broker.rule(topic, subscription,
            "<Filter i:type=\"SqlFilter\"><SqlExpression>sys.Label = 'red' AND size &gt; 5</SqlExpression>"
                + "</Filter><Action i:type=\"SqlRuleAction\">"
                + "<SqlExpression>SET priority = size * 2</SqlExpression></Action>");
        try (JMSContext context = Client.connect()) {
            send(context, topic, "red", 1);
            send(context, topic, "red", 9);
            send(context, topic, "blue", 9);
            JMSConsumer consumer = consumer(context, topic, subscription);
            Message message = Client.receive(consumer);
            Expect.equal("red 9", message.getBody(String.class));
            Expect.equal("18", message.getObjectProperty("priority").toString());
            Client.nothingComes(consumer);
        }
    }

    private static void correlationFilter() throws Exception {
        String topic = Broker.topic();
        String subscription = Broker.subscription(topic);
        Broker.rule(topic, subscription,
            "<Filter i:type=\"CorrelationFilter\"><Label>blue</Label></Filter>");
        try (JMSContext context = Client.connect()) {
            send(context, topic, "red", 1);
            send(context, topic, "blue", 2);
            JMSConsumer consumer = consumer(context, topic, subscription);
            Expect.equal(List.of("blue 2"), Client.receive(consumer, 1));
            Client.nothingComes(consumer);
        }
    }
}
