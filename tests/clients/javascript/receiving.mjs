import assert from "node:assert/strict";
import { eventually } from "../node/trial.mjs";
import { bodies, connect, errorCode, nothing, receive, send, take } from "./client.mjs";

const CONCURRENT = Array.from({ length: 20 }, (_, number) => `message ${number}`);

export async function receiveNoPrefetch(t) {
  const client = connect(t);
  const queue = await t.queue();
  const receiver = client.createReceiver(queue);
  const began = Date.now();
  assert.deepEqual(await receiver.receiveMessages(5, { maxWaitTimeInMs: 1_000 }), []);
  assert.ok(Date.now() - began < 5_000, `an empty receive took ${Date.now() - began} ms`);
  await send(client, queue, "a", "b", "c");
  assert.deepEqual(bodies(await receive(receiver, 2)), ["a", "b"]);
  assert.deepEqual(bodies(await receive(receiver, 1)), ["c"]);
}

export async function processor(t) {
  const client = connect(t);
  const queue = await t.queue();
  const texts = Array.from({ length: 60 }, (_, number) => `message ${number}`);
  await send(client, queue, ...texts);
  const done = [];
  const errors = [];
  let running = 0;
  let most = 0;
  const receiver = client.createReceiver(queue);
  receiver.subscribe(
    {
      processMessage: async (message) => {
        running += 1;
        most = Math.max(most, running);
        await new Promise((resolve) => setTimeout(resolve, 5));
        running -= 1;
        done.push(message.body);
      },
      processError: async ({ error }) => errors.push(error),
    },
    { maxConcurrentCalls: 5 },
  );
  await eventually(() => done.length >= texts.length, "all are processed");
  await receiver.close();
  assert.deepEqual(errors, []);
  assert.deepEqual([...done].sort(), [...texts].sort());
  assert.equal(most, 5);
  assert.deepEqual(await client.createReceiver(queue).peekMessages(1), []);
}

export async function complete(t) {
  const client = connect(t);
  const queue = await t.queue();
  await send(client, queue, "a", "b");
  const receiver = client.createReceiver(queue);
  assert.deepEqual(await take(receiver, 2), ["a", "b"]);
  await nothing(receiver);
  assert.deepEqual(await receiver.peekMessages(1), []);
}

export async function abandonWithProperties(t) {
  const client = connect(t);
  const queue = await t.queue();
  await send(client, queue, { body: "a", applicationProperties: { kept: "yes" } }, "b");
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.abandonMessage(message, { attempts: 1, note: "too early" });
  const [again] = await receive(receiver, 1);
  assert.deepEqual([again.body, again.deliveryCount], ["a", 1]);
  assert.deepEqual(again.applicationProperties, { kept: "yes", attempts: 1, note: "too early" });
  await receiver.completeMessage(again);
}

export async function deferAndFetch(t) {
  const client = connect(t);
  const queue = await t.queue();
  await send(client, queue, "later", "now");
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.deferMessage(message, { why: "order" });
  assert.deepEqual(await take(receiver, 1), ["now"]);
  await nothing(receiver);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.deepEqual(
    [deferred.body, deferred.state, deferred.applicationProperties],
    ["later", "deferred", { why: "order" }],
  );
  await receiver.completeMessage(deferred);
  assert.deepEqual(await receiver.peekMessages(1), []);
}

export async function deadLetterAndReadBack(t) {
  const client = connect(t);
  const queue = await t.queue();
  await send(client, queue, "bad");
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.deadLetterMessage(message, {
    deadLetterReason: "no good",
    deadLetterErrorDescription: "it is broken",
    extra: 7,
  });
  const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
  const [read] = await receive(dead, 1);
  assert.deepEqual(
    [read.body, read.deadLetterReason, read.deadLetterErrorDescription],
    ["bad", "no good", "it is broken"],
  );
  assert.equal(read.applicationProperties.extra, 7);
  await dead.completeMessage(read);
  await nothing(receiver);
}

export async function receiveAndDelete(t) {
  const client = connect(t);
  const queue = await t.queue();
  await send(client, queue, "a", "b", "c");
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await receive(receiver, 2)), ["a", "b"]);
  assert.deepEqual(bodies(await receiver.peekMessages(10)), ["c"]);
}

export async function peek(t) {
  const client = connect(t);
  const queue = await t.queue();
  await send(client, queue, "a", "b", "c");
  const receiver = client.createReceiver(queue);
  const [, second] = await receiver.peekMessages(2);
  assert.equal(second.body, "b");
  const from = client.createReceiver(queue);
  const options = { fromSequenceNumber: second.sequenceNumber };
  assert.deepEqual(bodies(await from.peekMessages(10, options)), ["b", "c"]);
  assert.deepEqual(bodies(await receive(receiver, 3)), ["a", "b", "c"]);
}

export async function renewLock(t) {
  const client = connect(t);
  const queue = await t.queue({ LockDuration: "PT30S" });
  await send(client, queue, "long work");
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  for (let times = 0; times < 3; times += 1) {
    const now = await t.advance(20);
    const until = await receiver.renewMessageLock(message);
    assert.ok(Math.abs(until - now - 30_000) < 5_000, `locked until ${until}, now ${now}`);
  }
  await receiver.completeMessage(message);
  assert.deepEqual(await receiver.peekMessages(1), []);
}

export async function autoRenewLock(t) {
  await t.restart(); // the SDK goes by its own clock: the broker's must not be ahead of it
  const client = connect(t);
  const queue = await t.queue({ LockDuration: "PT5S" });
  await send(client, queue, "long work");
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  const until = message.lockedUntilUtc.getTime();
  await eventually(() => message.lockedUntilUtc.getTime() > until, "the lock is renewed");
  await receiver.completeMessage(message);
  assert.deepEqual(await receiver.peekMessages(1), []);
}

export async function lockLost(t) {
  const client = connect(t);
  const queue = await t.queue({ LockDuration: "PT30S" });
  await send(client, queue, "slow");
  const slow = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(slow, 1);
  await t.advance(31);
  assert.equal(await errorCode(slow.completeMessage(message)), "MessageLockLost");
  const other = client.createReceiver(queue);
  const [again] = await receive(other, 1);
  assert.deepEqual([again.body, again.deliveryCount], ["slow", 1]);
  await other.completeMessage(again);
}

export async function concurrentManagement(t) {
  const client = connect(t);
  const queue = await t.queue({ LockDuration: "PT30S" });
  const sender = client.createSender(queue);
  const due = new Date((await t.now()).getTime() + 3_600_000);
  const numbers = await Promise.all(
    CONCURRENT.map((body) => sender.scheduleMessages({ body }, due)),
  );
  assert.equal(new Set(numbers.map(([number]) => String(number))).size, CONCURRENT.length);
  await t.advance(3_601);
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const messages = await receive(receiver, CONCURRENT.length);
  assert.deepEqual(bodies(messages).sort(), [...CONCURRENT].sort());
  await t.advance(20);
  await Promise.all(messages.map((message) => receiver.renewMessageLock(message)));
  await t.advance(20);
  await Promise.all(messages.map((message) => receiver.completeMessage(message)));
  assert.deepEqual(await receiver.peekMessages(1), []);
}

export async function autoRenewTen(t) {
  await t.restart();
  const client = connect(t);
  const queue = await t.queue({ LockDuration: "PT5S" });
  await send(client, queue, ...CONCURRENT.slice(0, 10));
  const receiver = client.createReceiver(queue);
  const messages = await receive(receiver, 10);
  const first = Math.max(...messages.map((message) => message.lockedUntilUtc.getTime()));
  const renewed = (message) => message.lockedUntilUtc.getTime() > first;
  await eventually(() => messages.every(renewed), "all locks are renewed");
  await t.advance(Math.ceil(Math.max(0, first - (await t.now())) / 1000));
  for (const message of messages) await receiver.completeMessage(message);
  assert.deepEqual(await receiver.peekMessages(1), []);
}

/** First the receiver is closed, then a whole connection. */
export async function backupSettlement(t) {
  const client = connect(t);
  const queue = await t.queue();
  await send(client, queue, "of a link", "of a connection");
  const receiver = client.createReceiver(queue);
  const [ofLink] = await receive(receiver, 1);
  await receiver.close();
  const other = connect(t);
  const [ofConnection] = await receive(other.createReceiver(queue), 1);
  await other.close();
  const settling = client.createReceiver(queue);
  await nothing(settling);
  await settling.completeMessage(ofLink);
  await settling.completeMessage(ofConnection);
  assert.deepEqual(await settling.peekMessages(1), []);
}
