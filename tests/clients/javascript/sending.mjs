import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { ServiceBusAdministrationClient } from "@azure/service-bus";
import { environment } from "../node/trial.mjs";
import { bodies, connect, nothing, receive, send, take } from "./client.mjs";

const MANY = 500;
const numbered = (count) => Array.from({ length: count }, (_, number) => `message ${number}`);

export async function sendOne(t) {
  const client = connect(t);
  const queue = await t.queue();
  await client.createSender(queue).sendMessages({ body: { text: "hello", number: 1 } });
  const [message] = await receive(client.createReceiver(queue), 1);
  assert.deepEqual(message.body, { text: "hello", number: 1 });
  assert.equal(message.deliveryCount, 0);
  assert.match(message.messageId, /^[0-9a-f]{32}$/);
}

export async function sendMany(t) {
  const client = connect(t);
  const queue = await t.queue();
  const sender = client.createSender(queue);
  await Promise.all(numbered(MANY).map((body) => sender.sendMessages({ body })));
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await receive(receiver, MANY)), numbered(MANY));
}

export async function sendBatch(t) {
  const client = connect(t);
  const queue = await t.queue({ MaxMessageSizeInKilobytes: 256 });
  const sender = client.createSender(queue);
  const batch = await sender.createMessageBatch();
  assert.equal(batch.maxSizeInBytes, 256 * 1024);
  const body = "x".repeat(10_000);
  while (batch.tryAddMessage({ body, messageId: `batch ${batch.count}` }));
  assert.ok(batch.count > 20, `a batch held ${batch.count} messages`);
  await sender.sendMessages(batch);
  await sender.sendMessages([{ body: "first of a list" }, { body: "second of a list" }]);
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  const received = await receive(receiver, batch.count + 2);
  assert.deepEqual(
    received.slice(0, batch.count).map((message) => message.messageId),
    Array.from({ length: batch.count }, (_, number) => `batch ${number}`),
  );
  assert.deepEqual(bodies(received.slice(batch.count)), ["first of a list", "second of a list"]);
}

export async function sendMegabyte(t) {
  const client = connect(t);
  const queue = await t.queue({ MaxMessageSizeInKilobytes: 2048 });
  const body = randomBytes(1024 * 1024);
  await client.createSender(queue).sendMessages({ body });
  const [message] = await receive(client.createReceiver(queue), 1);
  assert.ok(body.equals(message.body), "the body came back different");
}

export async function duplicateDetection(t) {
  const client = connect(t);
  const queue = await t.queue({
    RequiresDuplicateDetection: true,
    DuplicateDetectionHistoryTimeWindow: "PT1M",
  });
  const again = (body) => send(client, queue, { body, messageId: "same" });
  await again("first");
  await again("second");
  const receiver = client.createReceiver(queue);
  assert.deepEqual(await take(receiver, 1), ["first"]);
  await nothing(receiver);
  await t.advance(61);
  await again("third");
  assert.deepEqual(await take(receiver, 1), ["third"]);
}

export async function schedule(t) {
  const client = connect(t);
  const queue = await t.queue();
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue);
  const at = new Date((await t.now()).getTime() + 3_600_000);
  const numbers = await sender.scheduleMessages([{ body: "a" }, { body: "b" }], at);
  await sender.sendMessages({ body: "c", scheduledEnqueueTimeUtc: at });
  await nothing(receiver);
  const waiting = await receiver.peekMessages(10);
  assert.deepEqual(bodies(waiting), ["a", "b", "c"]);
  assert.deepEqual(new Set(waiting.map((message) => message.state)), new Set(["scheduled"]));
  assert.equal(String(waiting[0].sequenceNumber), String(numbers[0]));
  assert.equal(waiting[0].scheduledEnqueueTimeUtc.getTime(), at.getTime());
  await t.advance(3_601);
  const due = await receive(receiver, 3);
  assert.deepEqual(
    due.map((message) => [message.body, message.state]),
    [["a", "scheduled"], ["b", "scheduled"], ["c", "scheduled"]],
  );
  for (const message of due) {
    await receiver.completeMessage(message);
  }
}

export async function cancelScheduled(t) {
  const client = connect(t);
  const queue = await t.queue();
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue);
  const at = new Date((await t.now()).getTime() + 60_000);
  const [one] = await sender.scheduleMessages({ body: "one" }, at);
  const [two, three] = await sender.scheduleMessages([{ body: "two" }, { body: "three" }], at);
  await sender.cancelScheduledMessages([one, three]);
  await t.advance(61);
  assert.deepEqual(await take(receiver, 1), ["two"]);
  await nothing(receiver);
  assert.ok(two.greaterThan(one));
}

export async function timeToLive(t) {
  const client = connect(t);
  const queue = await t.queue({ DeadLetteringOnMessageExpiration: true });
  await send(client, queue, { body: "short", timeToLive: 10_000 }, { body: "long" });
  const [short] = await client.createReceiver(queue).peekMessages(1);
  assert.equal(short.timeToLive, 10_000);
  assert.equal(short.expiresAtUtc - short.enqueuedTimeUtc, 10_000);
  await t.advance(11);
  assert.deepEqual(await take(client.createReceiver(queue), 1), ["long"]);
  const [dead] = await receive(client.createReceiver(queue, { subQueueType: "deadLetter" }), 1);
  assert.equal(dead.body, "short");
  assert.equal(dead.deadLetterReason, "TTLExpiredException");
}

export async function forwarding(t) {
  const client = connect(t);
  const last = await t.queue();
  const graves = await t.queue();
  const first = await t.queue({ ForwardTo: last, ForwardDeadLetteredMessagesTo: graves });
  const doomed = await t.queue({ ForwardDeadLetteredMessagesTo: graves });
  await send(client, first, "passed on");
  assert.deepEqual(await take(client.createReceiver(last), 1), ["passed on"]);
  await send(client, doomed, "bad");
  const receiver = client.createReceiver(doomed);
  const [bad] = await receive(receiver, 1);
  await receiver.deadLetterMessage(bad, { deadLetterReason: "no good" });
  const [dead] = await receive(client.createReceiver(graves), 1);
  assert.deepEqual(
    [dead.body, dead.deadLetterReason, dead.deadLetterSource],
    ["bad", "no good", doomed],
  );
}

export async function forwardingRoundTrip(t) {
  const admin = new ServiceBusAdministrationClient(environment.adminConnectionString);
  const client = connect(t);
  const last = await t.queue();
  const first = t.name("forwarding");
  await admin.createQueue(first, { forwardTo: last });
  const read = await admin.getQueue(first);
  assert.ok(read.forwardTo.replace(/\/$/, "").endsWith(`/${last}`), read.forwardTo);
  await admin.updateQueue(read);
  assert.equal((await admin.getQueue(first)).forwardTo, read.forwardTo);
  const sent = {
    body: "passed on",
    messageId: "id",
    correlationId: "7",
    subject: "order",
    contentType: "text/plain",
    replyTo: "answers",
    to: "somewhere",
    timeToLive: 3_600_000,
    partitionKey: "key",
    applicationProperties: { size: 5 },
  };
  await send(client, first, sent);
  const receiver = client.createReceiver(last);
  const [message] = await receive(receiver, 1);
  for (const name of Object.keys(sent)) assert.deepEqual(message[name], sent[name], name);
  assert.equal(message.enqueuedSequenceNumber, 1);
  assert.equal(message.deliveryCount, 0);
  await receiver.completeMessage(message);
}
