import assert from "node:assert/strict";
import rhea from "rhea";
import { eventually } from "../node/trial.mjs";
import {
  accept,
  bodyOf,
  closed,
  condition,
  connect,
  lockToken,
  longs,
  manage,
  messagesIn,
  nothing,
  openReceiver,
  openSender,
  receive,
  send,
  sendTexts,
  settle,
  take,
  text,
  uuids,
  SETTLED,
} from "./client.mjs";

export async function receiveNoPrefetch(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  const receiver = await openReceiver(connection, queue);
  await nothing(receiver);
  await sendTexts(connection, queue, "a", "b", "c");
  assert.deepEqual(await take(receiver, 2), ["a", "b"]);
  assert.deepEqual(receiver.waiting, []);
  assert.deepEqual(await take(receiver, 1), ["c"]);
}

/** With rhea's own window of credit, and its own accepting. */
async function pump(t, options) {
  const connection = await connect(t);
  const queue = await t.queue();
  const texts = Array.from({ length: 300 }, (_, number) => `message ${number}`);
  await sendTexts(connection, queue, ...texts);
  const received = [];
  const receiver = connection.open_receiver({ source: queue, ...options });
  receiver.on("message", ({ message }) => received.push(bodyOf(message)));
  await eventually(() => received.length === texts.length, "all messages");
  assert.deepEqual(received, texts);
  await closed(receiver);
  await nothing(await openReceiver(connection, queue));
}

export const receivePrefetch = (t) => pump(t, { credit_window: 50 });
export const processor = (t) => pump(t, {});

export async function complete(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  await sendTexts(connection, queue, "a", "b");
  const receiver = await openReceiver(connection, queue);
  const [one] = await receive(receiver, 1);
  assert.equal(await accept(receiver, one), "accepted");
  const first = await openReceiver(connection, queue, { rcv_settle_mode: 0 });
  const [two] = await receive(first, 1);
  two.delivery.accept(); // settled by us: no answer comes
  await nothing(receiver);
}

export async function abandonWithProperties(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  await sendTexts(connection, queue, "a", "b");
  const receiver = await openReceiver(connection, queue);
  const [{ delivery }] = await receive(receiver, 1);
  const change = {
    delivery_failed: true,
    undeliverable_here: false,
    message_annotations: { attempts: 1, note: "too early" },
  };
  assert.equal(await settle(receiver, delivery, (one) => one.modified(change)), "modified");
  const [again] = await receive(receiver, 1);
  assert.equal(bodyOf(again.message), "a");
  assert.equal(again.message.delivery_count, 1);
  assert.deepEqual(again.message.application_properties, { attempts: 1, note: "too early" });
  assert.equal(await settle(receiver, again.delivery, (one) => one.release()), "released");
  const [third] = await receive(receiver, 1);
  assert.equal(third.message.delivery_count, 1);
}

export async function deferAndFetch(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  await sendTexts(connection, queue, "later", "now");
  const receiver = await openReceiver(connection, queue);
  const [{ message, delivery }] = await receive(receiver, 1);
  await settle(receiver, delivery, (one) => one.modified({ undeliverable_here: true }));
  assert.deepEqual(await take(receiver, 1), ["now"]);
  await nothing(receiver);
  const number = message.message_annotations["x-opt-sequence-number"];
  const answer = await manage(connection, queue, "com.microsoft:receive-by-sequence-number", {
    "sequence-numbers": longs([number]),
    "receiver-settle-mode": rhea.types.wrap_uint(1),
  });
  const [deferred] = messagesIn(answer);
  assert.equal(bodyOf(deferred.message), "later");
  const completed = manage(connection, queue, "com.microsoft:update-disposition", {
    "disposition-status": "completed",
    "lock-tokens": uuids([deferred.lockToken]),
  });
  assert.equal(await condition(completed), "no error");
  assert.deepEqual(await receiver.waiting, []);
}

export async function deadLetterAndReadBack(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  await sendTexts(connection, queue, "bad");
  const receiver = await openReceiver(connection, queue);
  const [{ delivery }] = await receive(receiver, 1);
  const error = {
    condition: "com.microsoft:dead-letter",
    description: "it is broken",
    info: { DeadLetterReason: "no good", DeadLetterErrorDescription: "it is broken", extra: 7 },
  };
  assert.equal(await settle(receiver, delivery, (one) => one.reject(error)), "rejected");
  const dead = await openReceiver(connection, `${queue}/$DeadLetterQueue`);
  const [read] = await receive(dead, 1);
  assert.equal(bodyOf(read.message), "bad");
  assert.deepEqual(read.message.application_properties, {
    DeadLetterReason: "no good",
    DeadLetterErrorDescription: "it is broken",
    extra: 7,
  });
  await accept(dead, read);
}

export async function receiveAndDelete(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  await sendTexts(connection, queue, "a", "b", "c");
  const modes = { snd_settle_mode: SETTLED, rcv_settle_mode: 0 };
  const receiver = await openReceiver(connection, queue, modes);
  const received = await receive(receiver, 2);
  assert.deepEqual(received.map(({ message }) => bodyOf(message)), ["a", "b"]);
  assert.equal(received[0].delivery.remote_settled, true);
  assert.deepEqual(await take(await openReceiver(connection, queue), 1), ["c"]);
}

const renewal = (one) => ({ "lock-tokens": uuids([lockToken(one)]) });

export async function renewLock(t) {
  const connection = await connect(t);
  const queue = await t.queue({ LockDuration: "PT30S" });
  await sendTexts(connection, queue, "long work");
  const receiver = await openReceiver(connection, queue);
  const [one] = await receive(receiver, 1);
  for (let times = 0; times < 3; times += 1) {
    const now = await t.advance(20);
    const answer = await manage(connection, queue, "com.microsoft:renew-lock", renewal(one));
    const [until] = answer.expirations;
    assert.ok(Math.abs(until - now - 30_000) < 5_000, `locked until ${until}, now ${now}`);
  }
  assert.equal(await accept(receiver, one), "accepted");
}

export async function lockLost(t) {
  const connection = await connect(t);
  const queue = await t.queue({ LockDuration: "PT30S" });
  await sendTexts(connection, queue, "slow");
  const receiver = await openReceiver(connection, queue);
  const [one] = await receive(receiver, 1);
  await t.advance(31);
  assert.equal(await condition(accept(receiver, one)), "com.microsoft:message-lock-lost");
  const renewed = manage(connection, queue, "com.microsoft:renew-lock", renewal(one));
  assert.equal(String(await condition(renewed)), "com.microsoft:message-lock-lost");
  const [again] = await receive(await openReceiver(connection, queue), 1);
  assert.equal(again.message.delivery_count, 1);
}

// --- topics -------------------------------------------------------------------------------------

const sendColoured = async (connection, topic, ...rows) => {
  const sender = await openSender(connection, topic);
  for (const [body, subject, colour, size] of rows) {
    const application_properties = { colour, size };
    await send(sender, { subject, application_properties, body: text(body) });
  }
};

export async function trueFilter(t) {
  const connection = await connect(t);
  const topic = await t.topic();
  for (const name of ["one", "two"]) await t.subscription(topic, name);
  await sendTexts(connection, topic, "a", "b");
  for (const name of ["one", "two"]) {
    const receiver = await openReceiver(connection, `${topic}/Subscriptions/${name}`);
    assert.deepEqual(await take(receiver, 2), ["a", "b"]);
  }
}

export async function sqlFilter(t) {
  const connection = await connect(t);
  const topic = await t.topic();
  await t.subscription(topic, "sub");
  const filter =
    '<Filter i:type="SqlFilter"><SqlExpression>colour = \'red\' AND size &gt; 10</SqlExpression>' +
    '</Filter><Action i:type="SqlRuleAction"><SqlExpression>SET matched = \'yes\'</SqlExpression>' +
    "</Action>";
  await t.rule(topic, "sub", "red", filter);
  await sendColoured(connection, topic, ["a", "", "red", 5], ["b", "", "red", 15], ["c", "", "blue", 15]);
  const receiver = await openReceiver(connection, `${topic}/Subscriptions/sub`);
  const [{ message }] = await receive(receiver, 1);
  assert.equal(bodyOf(message), "b");
  assert.equal(message.application_properties.matched, "yes");
  await nothing(receiver);
}

export async function correlationFilter(t) {
  const connection = await connect(t);
  const topic = await t.topic();
  await t.subscription(topic, "sub");
  const filter = '<Filter i:type="CorrelationFilter"><Label>order</Label></Filter>';
  await t.rule(topic, "sub", "orders", filter);
  await sendColoured(connection, topic, ["a", "other", "red", 1], ["b", "order", "red", 1]);
  const receiver = await openReceiver(connection, `${topic}/Subscriptions/sub`);
  assert.deepEqual(await take(receiver, 1), ["b"]);
  await nothing(receiver);
}

export async function ruleManagement(t) {
  const connection = await connect(t);
  const topic = await t.topic();
  await t.subscription(topic, "sub");
  const entity = `${topic}/Subscriptions/sub`;
  await manage(connection, entity, "com.microsoft:add-rule", {
    "rule-name": "red",
    "rule-description": { "sql-filter": { expression: "colour = 'red'" } },
  });
  await manage(connection, entity, "com.microsoft:remove-rule", { "rule-name": "$Default" });
  const window = { top: rhea.types.wrap_int(10), skip: rhea.types.wrap_int(0) };
  const answer = await manage(connection, entity, "com.microsoft:enumerate-rules", window);
  const names = answer.rules.map((rule) => rhea.types.unwrap(rule["rule-description"].value[2]));
  assert.deepEqual(names, ["red"]);
  await sendColoured(connection, topic, ["a", "", "blue", 1], ["b", "", "red", 1]);
  assert.deepEqual(await take(await openReceiver(connection, entity), 1), ["b"]);
}

/** Each request has links of its own, all on one connection. */
export async function concurrentManagement(t) {
  const connection = await connect(t);
  const queue = await t.queue({ LockDuration: "PT30S" });
  const at = new Date((await t.now()).getTime() + 3_600_000);
  const texts = Array.from({ length: 20 }, (_, number) => `message ${number}`);
  const schedule = (body) => {
    const message_annotations = { "x-opt-scheduled-enqueue-time": at };
    const message = rhea.message.encode({ message_id: body, message_annotations, body: text(body) });
    const messages = [{ "message-id": body, message }];
    return manage(connection, queue, "com.microsoft:schedule-message", { messages });
  };
  await Promise.all(texts.map(schedule));
  await t.advance(3_601);
  const receiver = await openReceiver(connection, queue);
  const held = await receive(receiver, texts.length);
  assert.deepEqual(held.map(({ message }) => bodyOf(message)).sort(), [...texts].sort());
  await t.advance(20);
  await Promise.all(
    held.map((one) => manage(connection, queue, "com.microsoft:renew-lock", renewal(one))),
  );
  await t.advance(20);
  for (const one of held) assert.equal(await accept(receiver, one), "accepted");
}

/** First the link is closed, then a whole connection. */
export async function backupSettlement(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  await sendTexts(connection, queue, "of a link", "of a connection");
  const receiver = await openReceiver(connection, queue);
  const [ofLink] = await receive(receiver, 1);
  await closed(receiver);
  const other = await connect(t);
  const [ofConnection] = await receive(await openReceiver(other, queue), 1);
  await closed(other);
  await nothing(await openReceiver(connection, queue));
  await manage(connection, queue, "com.microsoft:update-disposition", {
    "disposition-status": "completed",
    "lock-tokens": uuids([lockToken(ofLink), lockToken(ofConnection)]),
  });
  await t.advance(61);
  await nothing(await openReceiver(connection, queue));
}
