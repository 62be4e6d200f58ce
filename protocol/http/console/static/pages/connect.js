// Connect: the connection string of this very broker, and how each SDK uses it.

import { html, useState } from "../vendor/htm-preact.module.js";
import { get } from "../api.js";
import { live } from "../live.js";
import { Copy, Failure, Tabs, useLoaded } from "../widgets.js";

const PLACEHOLDER = "YOUR_KEY";

export default function Connect() {
  const [about, error, reload] = useLoaded(() => get("/connect"), []);
  const [language, setLanguage] = useState("python");
  if (error) return html`<div class="page"><${Failure} error=${error} retry=${reload} /></div>`;
  if (!about) return null;
  const string = about.connection_string ?? `Endpoint=sb://${about.host};SharedAccessKeyName=YOUR_KEY_NAME;SharedAccessKey=${PLACEHOLDER};UseDevelopmentEmulator=true;`;
  const queue = [...live.rows.values()].find((row) => row.kind === "queue" && row.held_sessions === null)?.path ?? "queue.1";
  const snippet = SNIPPETS[language];
  const code = snippet.code(string, queue);
  return html`<div class="page narrow">
    <h1>Connect</h1>
    <section class="panel" aria-label="Connection string"><header><h2>Connection string</h2><span class="hint">for messaging and administration</span></header>
      <div class="connection-string"><code id="connection-string">${string}</code><${Copy} text=${string} /></div>
      ${!about.connection_string && html`<p class="content hint">With strict authorization the key is shown only to the broker's own key. Put your key where the string has ${PLACEHOLDER}.</p>`}
    </section>
    <section class="panel" aria-label="Snippets"><header><h2>Send and receive</h2><div class="end"><${Copy} text=${code} /></div></header>
      <${Tabs} tabs=${Object.entries(SNIPPETS).map(([id, one]) => ({ id, label: one.label }))} chosen=${language} choose=${setLanguage} label="SDK" />
      <pre class="snippet" tabindex="0" role="region" aria-label=${`${snippet.label} snippet`}>${code}</pre>
      <p class="content hint">${snippet.install}</p>
    </section>
    <section class="panel" aria-label="Ports"><header><h2>Ports and TLS</h2></header>
      <table class="plain"><tbody>
        <tr><th scope="row">AMQP port</th><td>${about.ports.amqp}</td></tr>
        <tr><th scope="row">HTTP port</th><td>${about.ports.http} <span class="hint">administration, this console, /$peeklock/v1, /health, /metrics</span></td></tr>
        <tr><th scope="row">TLS port</th><td>${about.ports.tls ?? html`<span class="none">none of its own</span>`} <span class="hint">every port accepts AMQP, HTTP and WebSocket, with and without TLS</span></td></tr>
        <tr><th scope="row">This page</th><td>${about.is_tls ? "over TLS" : "without TLS"} at ${about.host}</td></tr>
        <tr><th scope="row">Certificate authority</th><td>${about.certificate_authority ? html`<code>${about.certificate_authority}</code> <span class="hint">clients that use TLS must trust it; <code>peeklock tls</code> says how</span>` : "your own certificate"}</td></tr>
        <tr><th scope="row">Authorization</th><td>${about.authorization}</td></tr>
        <tr><th scope="row">Namespace</th><td>${about.namespace}</td></tr>
        <tr><th scope="row">Version</th><td>${about.version}</td></tr>
      </tbody></table>
      <p class="content hint">The administration clients of Python, JavaScript, Java and Go always use TLS. In a container, the port of this page is the published one, and the string above has it.</p>
    </section>
  </div>`;
}

export const SNIPPETS = {
  dotnet: {
    label: ".NET",
    install: "dotnet add package Azure.Messaging.ServiceBus (7.18.3 or later)",
    code: (string, queue) => `using Azure.Messaging.ServiceBus;

const string Connection = "${string}";

await using var client = new ServiceBusClient(Connection);
await client.CreateSender("${queue}").SendMessageAsync(new ServiceBusMessage("hello"));

var receiver = client.CreateReceiver("${queue}");
var message = await receiver.ReceiveMessageAsync();
Console.WriteLine(message.Body);
await receiver.CompleteMessageAsync(message);
`,
  },
  python: {
    label: "Python",
    install: "pip install azure-servicebus",
    code: (string, queue) => `from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = "${string}"

with ServiceBusClient.from_connection_string(CONNECTION) as client:
    with client.get_queue_sender("${queue}") as sender:
        sender.send_messages(ServiceBusMessage("hello"))
    with client.get_queue_receiver("${queue}", max_wait_time=5) as receiver:
        for message in receiver.receive_messages():
            print(message)
            receiver.complete_message(message)
`,
  },
  javascript: {
    label: "JavaScript",
    install: "npm install @azure/service-bus",
    code: (string, queue) => `import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient("${string}");

await client.createSender("${queue}").sendMessages({ body: "hello" });

const receiver = client.createReceiver("${queue}");
const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 5000 });
console.log(message.body);
await receiver.completeMessage(message);
await client.close();
`,
  },
  java: {
    label: "Java",
    install: "com.azure:azure-messaging-servicebus",
    code: (string, queue) => `import com.azure.messaging.servicebus.*;

class Hello {
    static final String CONNECTION = "${string}";

    public static void main(String[] arguments) {
        var builder = new ServiceBusClientBuilder().connectionString(CONNECTION);
        try (var sender = builder.sender().queueName("${queue}").buildClient()) {
            sender.sendMessage(new ServiceBusMessage("hello"));
        }
        try (var receiver = builder.receiver().queueName("${queue}").buildClient()) {
            for (var message : receiver.receiveMessages(1)) {
                System.out.println(message.getBody());
                receiver.complete(message);
            }
        }
    }
}
`,
  },
  go: {
    label: "Go",
    install: "go get github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus",
    code: (string, queue) => `package main

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const connection = "${string}"

func main() {
	ctx := context.Background()
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	check(err)
	defer client.Close(ctx)

	sender, err := client.NewSender("${queue}", nil)
	check(err)
	check(sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("hello")}, nil))

	receiver, err := client.NewReceiverForQueue("${queue}", nil)
	check(err)
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	check(err)
	fmt.Println(string(messages[0].Body))
	check(receiver.CompleteMessage(ctx, messages[0], nil))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
`,
  },
};
