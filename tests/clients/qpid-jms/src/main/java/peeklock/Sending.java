package peeklock;

import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSProducer;
import jakarta.jms.Message;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** One message, many at once, and a large one. */
final class Sending {
    private static final int MANY = 500;

    private Sending() {
    }

    static void add(Report report) {
        report.add("send-one", Sending::one);
        report.add("send-many", Sending::many);
        report.skip("send-batch", "JMS has no batches");
        report.add("send-1mb", Sending::large);
    }

    /** Persistent, which waits for the broker, and not persistent, which is sent settled. */
    private static void one() throws Exception {
        String queue = Broker.queue();
        try (JMSContext context = Client.connect()) {
            context.createProducer().send(context.createQueue(queue), "one");
            Expect.equal(1, Broker.activeMessages(queue));
        }
        String settled = Client.address() + "?jms.presettlePolicy.presettleProducers=true";
        try (JMSContext context = Client.connect(settled, JMSContext.AUTO_ACKNOWLEDGE)) {
            context.createProducer().setDeliveryMode(DeliveryMode.NON_PERSISTENT)
                .send(context.createQueue(queue), "two");
        }
        Expect.equal(List.of("one", "two"), Client.rest(queue));
    }

    /** Sends that do not wait for each other: all are accepted, all arrive, in order. */
    private static void many() throws Exception {
        String queue = Broker.queue();
        CountDownLatch accepted = new CountDownLatch(MANY);
        ConcurrentLinkedQueue<Exception> failures = new ConcurrentLinkedQueue<>();
        List<String> sent = new ArrayList<>();
        try (JMSContext context = Client.connect()) {
            JMSProducer producer = context.createProducer().setAsync(new CompletionListener() {
                @Override
                public void onCompletion(Message message) {
                    accepted.countDown();
                }

                @Override
                public void onException(Message message, Exception exception) {
                    failures.add(exception);
                }
            });
            for (int i = 0; i < MANY; i++) {
                sent.add("m" + i);
                producer.send(context.createQueue(queue), "m" + i);
            }
            Expect.that(accepted.await(Client.WAIT_MS, TimeUnit.MILLISECONDS), "not all were accepted");
        }
        Expect.equal(List.of(), List.copyOf(failures));
        try (JMSContext context = Client.connect(Client.address(), JMSContext.AUTO_ACKNOWLEDGE)) {
            Expect.equal(sent,
                Client.receive(context.createConsumer(context.createQueue(queue)), MANY));
        }
    }

    private static void large() throws Exception {
        String queue = Broker.queue();
        byte[] body = new byte[1 << 20];
        new Random(1).nextBytes(body);
        try (JMSContext context = Client.connect()) {
            BytesMessage message = context.createBytesMessage();
            message.writeBytes(body);
            context.createProducer().send(context.createQueue(queue), message);
            Expect.equal(body, Client.receive(context.createConsumer(context.createQueue(queue)))
                .getBody(byte[].class));
        }
    }
}
