import assert from "node:assert/strict";
import { bodies, connect, errorCode, receive, send, take } from "./client.mjs";

const inSession = (sessionId, ...texts) => texts.map((body) => ({ body, sessionId }));

async function sessionQueue(t, properties = {}) {
  return t.queue({ RequiresSession: true, LockDuration: "PT30S", ...properties });
}

export async function named(t) {
  const client = connect(t);
  const queue = await sessionQueue(t);
  await send(client, queue, ...inSession("a", "a1", "a2"), ...inSession("b", "b1", "b2", "b3"));
  const receiver = await client.acceptSession(queue, "b");
  const messages = await receive(receiver, 3);
  assert.deepEqual(bodies(messages), ["b1", "b2", "b3"]);
  assert.equal(messages[0].sessionId, "b");
  for (const message of messages) await receiver.completeMessage(message);
  assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 400 }), []);
  await receiver.close();
  assert.deepEqual(await take(await client.acceptSession(queue, "a"), 2), ["a1", "a2"]);
}

export async function nextAvailable(t) {
  const client = connect(t);
  const queue = await sessionQueue(t);
  await send(client, queue, ...inSession("one", "1"), ...inSession("two", "2"));
  const seen = {};
  for (let count = 0; count < 2; count += 1) {
    const receiver = await client.acceptNextSession(queue);
    seen[receiver.sessionId] = await take(receiver, 1);
    await receiver.close();
  }
  assert.deepEqual(seen, { one: ["1"], two: ["2"] });
}

export async function twoHolders(t) {
  const client = connect(t);
  const queue = await sessionQueue(t);
  const one = await client.acceptSession(queue, "one");
  const two = await connect(t).acceptSession(queue, "two");
  await send(client, queue, ...inSession("two", "2a", "2b"), ...inSession("one", "1a", "1b"));
  assert.deepEqual(await take(one, 2), ["1a", "1b"]);
  assert.deepEqual(await take(two, 2), ["2a", "2b"]);
}

export async function state(t) {
  const client = connect(t);
  const queue = await sessionQueue(t);
  const first = await client.acceptSession(queue, "s");
  assert.equal(await first.getSessionState(), null);
  await first.setSessionState({ step: 1 });
  await first.close();
  const second = await client.acceptSession(queue, "s");
  assert.deepEqual(await second.getSessionState(), { step: 1 });
  await second.setSessionState(null);
  assert.equal(await second.getSessionState(), null);
}

export async function renew(t) {
  const client = connect(t);
  const queue = await sessionQueue(t);
  await send(client, queue, ...inSession("s", "long work"));
  const receiver = await client.acceptSession(queue, "s", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  const began = receiver.sessionLockedUntilUtc;
  for (let times = 0; times < 3; times += 1) {
    await t.advance(20);
    const until = await receiver.renewSessionLock();
    assert.equal(until.getTime(), receiver.sessionLockedUntilUtc.getTime());
  }
  assert.ok(receiver.sessionLockedUntilUtc - began >= 60_000);
  await receiver.completeMessage(message);
}

export async function lockLost(t) {
  const client = connect(t);
  const queue = await sessionQueue(t);
  await send(client, queue, ...inSession("s", "slow"));
  const slow = await client.acceptSession(queue, "s", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(slow, 1);
  await t.advance(31);
  assert.equal(await errorCode(slow.completeMessage(message)), "SessionLockLost");
  const other = await client.acceptSession(queue, "s");
  const [again] = await receive(other, 1);
  assert.deepEqual([again.body, again.deliveryCount], ["slow", 1]);
}

export async function noneAvailable(t) {
  const client = connect(t, { retryOptions: { timeoutInMs: 2_000, maxRetries: 0 } });
  const queue = await sessionQueue(t);
  assert.equal(await errorCode(client.acceptNextSession(queue)), "ServiceTimeout");
}

export async function held(t) {
  const client = connect(t);
  const queue = await sessionQueue(t);
  const holder = await client.acceptSession(queue, "s");
  assert.equal(await errorCode(connect(t).acceptSession(queue, "s")), "SessionCannotBeLocked");
  await holder.close();
  await connect(t).acceptSession(queue, "s");
}

/** The SDK takes no session but the one it asked for, letter by letter. */
export async function idCase(t) {
  const client = connect(t);
  const queue = await sessionQueue(t);
  for (const [id, body] of [["Order", "a"], ["ORDER", "b"], ["order", "c"]]) {
    await send(client, queue, ...inSession(id, body));
  }
  const receiver = await client.acceptSession(queue, "oRDER");
  await receiver.setSessionState("shared");
  assert.equal(await errorCode(connect(t).acceptSession(queue, "ORDER")), "SessionCannotBeLocked");
  assert.deepEqual(await take(receiver, 3), ["a", "b", "c"]);
  await receiver.close();
  const other = await client.acceptSession(queue, "Order");
  assert.equal(await other.getSessionState(), "shared");
}

export async function deferredAfterRenewals(t) {
  const client = connect(t);
  const queue = await sessionQueue(t);
  await send(client, queue, ...inSession("s", "early", "late"));
  const receiver = await client.acceptSession(queue, "s", { maxAutoLockRenewalDurationInMs: 0 });
  const numbers = [];
  for (const message of await receive(receiver, 2)) {
    await receiver.deferMessage(message);
    numbers.push(message.sequenceNumber);
  }
  const [early] = await receiver.receiveDeferredMessages(numbers[0]);
  for (let times = 0; times < 3; times += 1) {
    await t.advance(25);
    await receiver.renewSessionLock();
  }
  await receiver.completeMessage(early);
  const [late] = await receiver.receiveDeferredMessages(numbers[1]);
  await t.advance(25);
  await receiver.renewSessionLock();
  await t.advance(25);
  await receiver.completeMessage(late);
  assert.deepEqual(await receiver.peekMessages(1), []);
}
