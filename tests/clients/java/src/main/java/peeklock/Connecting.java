package peeklock;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;

/** The ways in: plain, TLS, WebSocket. */
final class Connecting {
    private Connecting() {
    }

    static void add(Report report) {
        report.add("connect-emulator-string", () -> converse(Client.builder()));
        report.add("connect-tls", () -> converse(overTls()));
        report.skip("connect-tls-emulator-flag", "the SDK never uses TLS with UseDevelopmentEmulator");
        report.add("connect-websocket",
            () -> converse(overTls().transportType(AmqpTransportType.AMQP_WEB_SOCKETS)));
    }

    private static ServiceBusClientBuilder overTls() {
        return new ServiceBusClientBuilder()
            .connectionString(Broker.variable("PEEKLOCK_TLS_CONNECTION_STRING"))
            .retryOptions(Client.patience(Client.WAIT));
    }

    private static void converse(ServiceBusClientBuilder builder) {
        String queue = Broker.queue();
        try (ServiceBusSenderClient sender = builder.sender().queueName(queue).buildClient();
            ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("hello"));
            ServiceBusReceivedMessage message = Client.receiveOne(receiver);
            Expect.equal("hello", message.getBody().toString());
            receiver.complete(message);
        }
    }
}
