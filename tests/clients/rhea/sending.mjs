import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import rhea from "rhea";
import {
  accept,
  bodyOf,
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
  sendTexts,
  settle,
  take,
  text,
  SETTLED,
} from "./client.mjs";

const MANY = 500;
const BATCH_FORMAT = 0x80013700;
const SCHEDULED = "x-opt-scheduled-enqueue-time";
const numbered = (count) => Array.from({ length: count }, (_, number) => `message ${number}`);

export async function sendOne(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  await send(await openSender(connection, queue), { body: "a value, not data" });
  const [{ message }] = await receive(await openReceiver(connection, queue), 1);
  assert.equal(message.body, "a value, not data");
  assert.equal(message.delivery_count, 0);
  assert.match(message.message_id, /^[0-9a-f]{32}$/);
}

export async function sendMany(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  const sender = await openSender(connection, queue);
  await Promise.all(numbered(MANY).map((body) => send(sender, { body: text(body) })));
  const presettled = connection.open_sender({ target: queue, snd_settle_mode: SETTLED });
  await new Promise((resolve) => presettled.once("sendable", resolve));
  presettled.send({ body: text("not waited for") });
  const received = await receive(await openReceiver(connection, queue), MANY + 1);
  const bodies = received.map(({ message }) => bodyOf(message));
  assert.deepEqual(bodies, [...numbered(MANY), "not waited for"]);
}

export async function sendBatch(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  const sender = await openSender(connection, queue);
  const inner = numbered(50).map((body) => rhea.message.encode({ body: text(body) }));
  const batch = rhea.message.encode({ body: rhea.message.data_sections(inner) });
  await send(sender, batch, BATCH_FORMAT);
  assert.deepEqual(await take(await openReceiver(connection, queue), 50), numbered(50));
}

export async function sendMegabyte(t) {
  const connection = await connect(t);
  const queue = await t.queue({ MaxMessageSizeInKilobytes: 2048 });
  const body = randomBytes(1024 * 1024);
  await send(await openSender(connection, queue), { body: rhea.message.data_section(body) });
  const [{ message }] = await receive(await openReceiver(connection, queue), 1);
  assert.ok(body.equals(message.body.content), "the body came back different");
}

export async function schedule(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  const receiver = await openReceiver(connection, queue);
  const at = new Date((await t.now()).getTime() + 60_000);
  const sender = await openSender(connection, queue);
  await send(sender, { body: text("later"), message_annotations: { [SCHEDULED]: at } });
  await nothing(receiver);
  await t.advance(61);
  assert.deepEqual(await take(receiver, 1), ["later"]);
}

export async function cancelScheduled(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  const at = new Date((await t.now()).getTime() + 60_000);
  const entry = (body) => ({
    "message-id": body,
    message: rhea.message.encode({
      message_id: body,
      message_annotations: { [SCHEDULED]: at },
      body: text(body),
    }),
  });
  const messages = [entry("one"), entry("two")];
  const answer = await manage(connection, queue, "com.microsoft:schedule-message", { messages });
  const [first] = answer["sequence-numbers"];
  const numbers = { "sequence-numbers": longs([first]) };
  await manage(connection, queue, "com.microsoft:cancel-scheduled-message", numbers);
  await t.advance(61);
  const receiver = await openReceiver(connection, queue);
  assert.deepEqual(await take(receiver, 1), ["two"]);
  await nothing(receiver);
}

export async function duplicateDetection(t) {
  const connection = await connect(t);
  const queue = await t.queue({
    RequiresDuplicateDetection: true,
    DuplicateDetectionHistoryTimeWindow: "PT1M",
  });
  const sender = await openSender(connection, queue);
  await send(sender, { message_id: "same", body: text("first") });
  await send(sender, { message_id: "same", body: text("second") });
  const receiver = await openReceiver(connection, queue);
  assert.deepEqual(await take(receiver, 1), ["first"]);
  await nothing(receiver);
}

export async function timeToLive(t) {
  const connection = await connect(t);
  const queue = await t.queue({ DeadLetteringOnMessageExpiration: true });
  const sender = await openSender(connection, queue);
  await send(sender, { ttl: 10_000, body: text("short") });
  await send(sender, { body: text("long") });
  await t.advance(11);
  assert.deepEqual(await take(await openReceiver(connection, queue), 1), ["long"]);
  const dead = await openReceiver(connection, `${queue}/$DeadLetterQueue`);
  const [{ message }] = await receive(dead, 1);
  assert.equal(bodyOf(message), "short");
  assert.equal(message.application_properties.DeadLetterReason, "TTLExpiredException");
}

export async function forwarding(t) {
  const connection = await connect(t);
  const last = await t.queue();
  const first = await t.queue({ ForwardTo: last });
  const doomed = await t.queue({ ForwardDeadLetteredMessagesTo: last });
  await sendTexts(connection, first, "passed on");
  const receiver = await openReceiver(connection, last);
  assert.deepEqual(await take(receiver, 1), ["passed on"]);
  await sendTexts(connection, doomed, "bad");
  const reader = await openReceiver(connection, doomed);
  const [{ delivery }] = await receive(reader, 1);
  await settle(reader, delivery, (one) => one.reject({ condition: "com.microsoft:dead-letter" }));
  const [{ message }] = await receive(receiver, 1);
  assert.equal(message.message_annotations["x-opt-deadletter-source"], doomed);
}

export async function peek(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  await sendTexts(connection, queue, "a", "b", "c");
  const look = async (from) =>
    messagesIn(
      await manage(connection, queue, "com.microsoft:peek-message", {
        "from-sequence-number": rhea.types.wrap_long(from),
        "message-count": rhea.types.wrap_int(10),
      }),
    ).map(({ message }) => message);
  const all = await look(0);
  assert.deepEqual(all.map(bodyOf), ["a", "b", "c"]);
  const second = all[1].message_annotations["x-opt-sequence-number"];
  assert.deepEqual((await look(second)).map(bodyOf), ["b", "c"]);
  const receiver = await openReceiver(connection, queue);
  for (const one of await receive(receiver, 3)) await accept(receiver, one);
  assert.deepEqual(await look(0), []);
}

export async function notFound(t) {
  const connection = await connect(t);
  const name = t.name("absent");
  assert.equal(await condition(openSender(connection, name)), "amqp:not-found");
  assert.equal(await condition(openReceiver(connection, name)), "amqp:not-found");
}

export async function quota(t) {
  const connection = await connect(t);
  const queue = await t.queue({ MaxSizeInMegabytes: 1 });
  const sender = await openSender(connection, queue);
  const body = rhea.message.data_section(Buffer.alloc(200_000));
  const fill = async () => {
    for (let count = 0; count < 8; count += 1) await send(sender, { body });
  };
  assert.equal(await condition(fill()), "amqp:resource-limit-exceeded");
}

export async function tooLarge(t) {
  const connection = await connect(t);
  const queue = await t.queue({ MaxMessageSizeInKilobytes: 256 });
  const sender = await openSender(connection, queue);
  const large = send(sender, { body: rhea.message.data_section(Buffer.alloc(300_000)) });
  assert.equal(await condition(large), "amqp:link:message-size-exceeded");
  await send(sender, { body: text("small") });
  assert.deepEqual(await take(await openReceiver(connection, queue), 1), ["small"]);
}

export async function purgeEmpty(t) {
  const connection = await connect(t);
  const queue = await t.queue();
  const later = new Date((await t.now()).getTime() + 60_000);
  const purge = () =>
    manage(connection, queue, "com.microsoft:batch-delete-messages", {
      "message-count": rhea.types.wrap_int(10),
      "enqueued-time-utc": rhea.types.wrap_timestamp(later.getTime()),
    });
  assert.equal(await purge(), undefined);
  await sendTexts(connection, queue, "a", "b");
  assert.equal((await purge())["message-count"], 2);
  assert.equal(await purge(), undefined);
}
