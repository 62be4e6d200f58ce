import assert from "node:assert/strict";
import {
  accept,
  bodyOf,
  closed,
  condition,
  connect,
  manage,
  nothing,
  openReceiver,
  openSender,
  receive,
  send,
  take,
  text,
} from "./client.mjs";

const FILTER = "com.microsoft:session-filter";

const sessionQueue = (t) => t.queue({ RequiresSession: true, LockDuration: "PT30S" });

async function sendTo(connection, queue, session, ...texts) {
  const sender = await openSender(connection, queue);
  for (const body of texts) await send(sender, { group_id: session, body: text(body) });
}

/** The receiver of a session; any session if none is named. */
const hold = (connection, queue, session = null, properties = {}) =>
  openReceiver(connection, queue, { source: { filter: { [FILTER]: session } }, properties });

const held = (receiver) => receiver.source.filter[FILTER];

export async function named(t) {
  const connection = await connect(t);
  const queue = await sessionQueue(t);
  await sendTo(connection, queue, "a", "a1");
  await sendTo(connection, queue, "b", "b1", "b2");
  const receiver = await hold(connection, queue, "b");
  assert.equal(held(receiver), "b");
  assert.deepEqual(await take(receiver, 2), ["b1", "b2"]);
  await nothing(receiver);
  assert.equal(await condition(openReceiver(connection, queue)), "amqp:not-allowed");
}

export async function nextAvailable(t) {
  const connection = await connect(t);
  const queue = await sessionQueue(t);
  await sendTo(connection, queue, "one", "1");
  await sendTo(connection, queue, "two", "2");
  const seen = {};
  for (let count = 0; count < 2; count += 1) {
    const receiver = await hold(connection, queue);
    seen[held(receiver)] = await take(receiver, 1);
  }
  assert.deepEqual(seen, { one: ["1"], two: ["2"] });
}

export async function twoHolders(t) {
  const connection = await connect(t);
  const queue = await sessionQueue(t);
  const one = await hold(connection, queue, "one");
  const two = await hold(await connect(t), queue, "two");
  await sendTo(connection, queue, "two", "2a", "2b");
  await sendTo(connection, queue, "one", "1a", "1b");
  assert.deepEqual(await take(one, 2), ["1a", "1b"]);
  assert.deepEqual(await take(two, 2), ["2a", "2b"]);
}

export async function state(t) {
  const connection = await connect(t);
  const queue = await sessionQueue(t);
  const session = { "session-id": "s" };
  const read = async () =>
    (await manage(connection, queue, "com.microsoft:get-session-state", session))["session-state"];
  const write = (value) =>
    manage(connection, queue, "com.microsoft:set-session-state", {
      ...session,
      "session-state": value,
    });
  const receiver = await hold(connection, queue, "s");
  assert.equal(await read(), null);
  await write(Buffer.from("step 1"));
  await closed(receiver);
  await hold(connection, queue, "s");
  assert.equal((await read()).toString(), "step 1");
  await write(null);
  assert.equal(await read(), null);
}

export async function renew(t) {
  const connection = await connect(t);
  const queue = await sessionQueue(t);
  await sendTo(connection, queue, "s", "long work");
  const receiver = await hold(connection, queue, "s");
  const [one] = await receive(receiver, 1);
  for (let times = 0; times < 3; times += 1) {
    const now = await t.advance(20);
    const { expiration } = await manage(connection, queue, "com.microsoft:renew-session-lock", {
      "session-id": "s",
    });
    assert.ok(Math.abs(expiration - now - 30_000) < 5_000, `${expiration} at ${now}`);
  }
  assert.equal(await accept(receiver, one), "accepted");
}

export async function lockLost(t) {
  const connection = await connect(t);
  const queue = await sessionQueue(t);
  await sendTo(connection, queue, "s", "slow");
  const receiver = await hold(connection, queue, "s");
  const ended = new Promise((resolve) => {
    receiver.once("receiver_error", () => resolve(receiver.error.condition));
  });
  const [one] = await receive(receiver, 1);
  await t.advance(31);
  assert.equal(await ended, "com.microsoft:session-lock-lost");
  assert.equal(one.delivery.remote_state.error.condition, "com.microsoft:session-lock-lost");
  const [again] = await receive(await hold(connection, queue, "s"), 1);
  assert.deepEqual([bodyOf(again.message), again.message.delivery_count], ["slow", 1]);
}

export async function noneAvailable(t) {
  const connection = await connect(t);
  const queue = await sessionQueue(t);
  const began = Date.now();
  const waiting = hold(connection, queue, null, { "com.microsoft:timeout": 1_000 });
  assert.equal(await condition(waiting), "com.microsoft:timeout");
  assert.ok(Date.now() - began < 5_000, `it came after ${Date.now() - began} ms`);
}

export async function heldByAnother(t) {
  const connection = await connect(t);
  const queue = await sessionQueue(t);
  const holder = await hold(connection, queue, "s");
  const other = await connect(t);
  assert.equal(await condition(hold(other, queue, "s")), "com.microsoft:session-cannot-be-locked");
  await closed(holder);
  assert.equal(held(await hold(other, queue, "s")), "s");
}
