import assert from "node:assert/strict";
import { ServiceBusAdministrationClient } from "@azure/service-bus";
import { environment } from "../node/trial.mjs";
import { connect, errorCode, send, take } from "./client.mjs";

export async function notFound(t) {
  const client = connect(t);
  const name = t.name("absent");
  assert.equal(await errorCode(send(client, name, "a")), "MessagingEntityNotFound");
  const receiver = client.createReceiver(name);
  assert.equal(await errorCode(receiver.receiveMessages(1)), "MessagingEntityNotFound");
  assert.equal(await errorCode(receiver.peekMessages(1)), "MessagingEntityNotFound");
}

export async function unauthorized(t) {
  const queue = await t.queue();
  const wrong = environment.connectionString.replace("SAS_KEY_VALUE", "not the key");
  // By default the SDK tries again for minutes: the key might be about to change.
  const client = connect(t, { retryOptions: { maxRetries: 0 } }, wrong);
  assert.equal(await errorCode(send(client, queue, "a")), "UnauthorizedAccess");
}

export async function quota(t) {
  const client = connect(t);
  const queue = await t.queue({ MaxSizeInMegabytes: 1 });
  const sender = client.createSender(queue);
  const body = Buffer.alloc(200_000);
  const fill = async () => {
    for (let count = 0; count < 8; count += 1) await sender.sendMessages({ body });
  };
  assert.equal(await errorCode(fill()), "QuotaExceeded");
}

export async function tooLarge(t) {
  const client = connect(t);
  const queue = await t.queue({ MaxMessageSizeInKilobytes: 256 });
  const sender = client.createSender(queue);
  const large = sender.sendMessages({ body: Buffer.alloc(300_000) });
  assert.equal(await errorCode(large), "MessageSizeExceeded");
  await sender.sendMessages({ body: "small" });
  assert.deepEqual(await take(client.createReceiver(queue), 1), ["small"]);
}

export async function notFoundOperations(t) {
  const client = connect(t);
  const nowhere = t.name("nowhere");
  const topic = await t.topic();
  const due = new Date((await t.now()).getTime() + 3_600_000);
  const sender = client.createSender(nowhere);
  const receiver = client.createReceiver(nowhere);
  const subscriber = client.createReceiver(topic, "nowhere");
  const somewhere = client.createSender(await t.queue());
  const [number] = await somewhere.scheduleMessages({ body: "x" }, due);
  const calls = {
    send: () => sender.sendMessages({ body: "x" }),
    schedule: () => sender.scheduleMessages({ body: "x" }, due),
    cancel: () => sender.cancelScheduledMessages(number),
    "make a batch": () => sender.createMessageBatch(),
    receive: () => receiver.receiveMessages(1, { maxWaitTimeInMs: 1_000 }),
    peek: () => receiver.peekMessages(1),
    fetch: () => receiver.receiveDeferredMessages(number),
    "receive from a subscription": () => subscriber.receiveMessages(1, { maxWaitTimeInMs: 1_000 }),
    "peek in a subscription": () => subscriber.peekMessages(1),
    "accept a session": () => client.acceptSession(nowhere, "s"),
    "accept any session": () => client.acceptNextSession(nowhere),
    "list rules": () => client.createRuleManager(topic, "nowhere").listRules().next(),
    "create a rule": () =>
      client.createRuleManager(topic, "nowhere").createRule("rule", { sqlExpression: "a = 1" }),
  };
  const wrong = [];
  for (const [name, call] of Object.entries(calls)) {
    const code = await errorCode(call()).catch(String);
    if (code !== "MessagingEntityNotFound") wrong.push(`${name}: ${code}`);
  }
  const admin = new ServiceBusAdministrationClient(environment.adminConnectionString);
  const requests = {
    "get a queue": () => admin.getQueue(nowhere),
    "count a queue": () => admin.getQueueRuntimeProperties(nowhere),
    "delete a queue": () => admin.deleteQueue(nowhere),
    "get a topic": () => admin.getTopic(nowhere),
    "delete a topic": () => admin.deleteTopic(nowhere),
    "get a subscription": () => admin.getSubscription(topic, nowhere),
    "create a subscription": () => admin.createSubscription(nowhere, "sub"),
    "get a rule": () => admin.getRule(topic, nowhere, "rule"),
    "create a rule over HTTP": () => admin.createRule(topic, nowhere, "rule", { subject: "x" }),
  };
  for (const [name, request] of Object.entries(requests)) {
    const code = await request().then(
      () => "no error",
      (error) => error.code ?? String(error),
    );
    if (code !== "MessageEntityNotFoundError") wrong.push(`${name}: ${code}`);
  }
  assert.deepEqual(wrong, []);
}
