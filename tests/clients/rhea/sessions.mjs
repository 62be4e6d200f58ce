import assert from "node:assert/strict";
import rhea from "rhea";
import {
  accept,
  bodyOf,
  closed,
  condition,
  connect,
  longs,
  manage,
  messagesIn,
  nothing,
  openReceiver,
  openSender,
  receive,
  send,
  settle,
  take,
  text,
  uuids,
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

export async function idCase(t) {
  const connection = await connect(t);
  const queue = await sessionQueue(t);
  for (const [id, body] of [["Order", "a"], ["ORDER", "b"], ["order", "c"]]) {
    await sendTo(connection, queue, id, body);
  }
  const receiver = await hold(connection, queue, "oRDER");
  assert.equal(held(receiver).toLowerCase(), "order");
  await manage(connection, queue, "com.microsoft:set-session-state", {
    "session-id": "order",
    "session-state": Buffer.from("shared"),
  });
  const other = hold(await connect(t), queue, "Order");
  assert.equal(await condition(other), "com.microsoft:session-cannot-be-locked");
  assert.deepEqual(await take(receiver, 3), ["a", "b", "c"]);
  const which = { "session-id": "ORDER" };
  const answer = await manage(connection, queue, "com.microsoft:get-session-state", which);
  assert.equal(answer["session-state"].toString(), "shared");
}

export async function deferredAfterRenewals(t) {
  const connection = await connect(t);
  const queue = await sessionQueue(t);
  await sendTo(connection, queue, "s", "early", "late");
  const receiver = await hold(connection, queue, "s");
  const which = { "session-id": "s" };
  const numbers = [];
  for (const { message, delivery } of await receive(receiver, 2)) {
    numbers.push(message.message_annotations["x-opt-sequence-number"]);
    await settle(receiver, delivery, (one) => one.modified({ undeliverable_here: true }));
  }
  const fetch = async (number) => {
    const answer = await manage(connection, queue, "com.microsoft:receive-by-sequence-number", {
      ...which,
      "sequence-numbers": longs([number]),
      "receiver-settle-mode": rhea.types.wrap_uint(1),
    });
    return messagesIn(answer)[0].lockToken;
  };
  const complete = (token) =>
    manage(connection, queue, "com.microsoft:update-disposition", {
      ...which,
      "disposition-status": "completed",
      "lock-tokens": uuids([token]),
    });
  const renewed = () => manage(connection, queue, "com.microsoft:renew-session-lock", which);
  const early = await fetch(numbers[0]);
  for (let times = 0; times < 3; times += 1) {
    await t.advance(25);
    await renewed();
  }
  await complete(early);
  const late = await fetch(numbers[1]);
  await t.advance(25);
  await renewed();
  await t.advance(25);
  await complete(late);
}

export async function notFoundOperations(t) {
  const connection = await connect(t);
  const nowhere = t.name("nowhere");
  const subscription = `${await t.topic()}/Subscriptions/nowhere`;
  assert.equal(await condition(openSender(connection, nowhere)), "amqp:not-found");
  for (const address of [nowhere, `${nowhere}/$DeadLetterQueue`, subscription]) {
    assert.equal(await condition(openReceiver(connection, address)), "amqp:not-found", address);
  }
  for (const id of ["s", null]) {
    assert.equal(await condition(hold(connection, nowhere, id)), "amqp:not-found");
  }
  const peek = { "from-sequence-number": 1, "message-count": rhea.types.wrap_int(1) };
  for (const entity of [nowhere, subscription]) {
    const peeked = manage(connection, entity, "com.microsoft:peek-message", peek);
    assert.match(String(await condition(peeked)), /not-found$/, entity);
  }
}
