// rhea with promises around its events: connections, links, settling, and requests to $management.

import assert from "node:assert/strict";
import rhea from "rhea";
import { environment } from "../node/trial.mjs";

const WAIT_MS = 10_000; // long enough for what must come
const NOTHING_MS = 400; // how long to look for what must not come
export const SECOND = 1; // the receiver settles when the broker has answered
export const SETTLED = 1; // the sender settles at once

export const text = (body) => rhea.message.data_section(Buffer.from(body));
export const bodyOf = (message) => message.body.content.toString();

/** An AMQP error as something to throw. */
class AmqpError extends Error {
  constructor({ condition, description }) {
    super(description);
    this.code = condition;
  }
}

/** The context of an event, or the error that comes instead of it. */
function event(emitter, name, ...failures) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no ${name}`)), WAIT_MS);
    emitter.once(name, (context) => {
      clearTimeout(timer);
      resolve(context);
    });
    for (const failure of failures) {
      emitter.once(failure, (context) => {
        clearTimeout(timer);
        const end = context.sender ?? context.receiver ?? context.connection;
        const error = context.error ?? end.error; // the first where SASL failed
        reject(new AmqpError(error ?? { condition: failure, description: failure }));
      });
    }
  });
}

/** The parts of a connection string by their names. */
export const parts = (connectionString) =>
  Object.fromEntries(
    connectionString
      .split(";")
      .filter(Boolean)
      .map((part) => [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)]),
  );

/** An open connection, with SASL PLAIN: the name of the key and the key. */
export async function connect(t, options = {}) {
  const key = parts(environment.connectionString);
  const connection = rhea.create_container().connect({
    host: environment.host,
    port: environment.amqpPort,
    username: key.SharedAccessKeyName,
    password: key.SharedAccessKey,
    reconnect: false,
    ...options,
  });
  const opened = event(connection, "connection_open", "connection_error", "disconnected");
  await opened;
  connection.on("disconnected", () => {});
  t.finally(() => closed(connection));
  return connection;
}

/** Close a connection or a link, and wait for the broker's answer. */
export async function closed(endpoint) {
  if (endpoint.is_closed()) return;
  const kind = endpoint.is_receiver ? (endpoint.is_receiver() ? "receiver" : "sender") : "connection";
  const answered = event(endpoint, `${kind}_close`);
  endpoint.close();
  await answered;
}

/** A sender that has credit. */
export async function openSender(connection, address, options = {}) {
  const sender = connection.open_sender({ target: { address }, ...options });
  await event(sender, "sendable", "sender_error", "sender_close");
  sender.outcomes = new Map();
  sender.on("settled", ({ delivery }) => sender.outcomes.get(delivery)?.(delivery.remote_state));
  sender.on("sender_error", () => {});
  return sender;
}

/** Send, and wait until it is accepted. The format is for encoded batches. */
export async function send(sender, message, format) {
  const delivery = sender.send(message, undefined, format);
  const state = await new Promise((resolve) => sender.outcomes.set(delivery, resolve));
  sender.outcomes.delete(delivery);
  if (state.error) throw new AmqpError(state.error);
  assert.equal(state.constructor.composite_type, "accepted");
}

export async function sendTexts(connection, address, ...texts) {
  const sender = await openSender(connection, address);
  await Promise.all(texts.map((body) => send(sender, { body: text(body) })));
  sender.close();
}

/** A receiver that gets what it asks for and settles what it is told to. */
export async function openReceiver(connection, address, options = {}) {
  const { source, ...others } = options;
  const receiver = connection.open_receiver({
    source: { address, ...source },
    autoaccept: false,
    credit_window: 0,
    rcv_settle_mode: SECOND,
    ...others,
  });
  receiver.waiting = [];
  receiver.outcomes = new Map();
  receiver.on("settled", ({ delivery }) => receiver.outcomes.get(delivery)?.(delivery.remote_state));
  receiver.on("message", ({ message, delivery }) => receiver.waiting.push({ message, delivery }));
  const refused = event(receiver, "receiver_close", "receiver_error");
  refused.catch(() => {});
  await Promise.race([event(receiver, "receiver_open"), refused]);
  if (!receiver.source?.address) await refused; // a link that is refused opens without a source
  return receiver;
}

/** Exactly so many messages with their deliveries. */
export async function receive(receiver, count) {
  const missing = count - receiver.waiting.length;
  if (missing > 0) receiver.add_credit(missing);
  const end = Date.now() + WAIT_MS;
  while (receiver.waiting.length < count) {
    if (receiver.error) throw new AmqpError(receiver.error);
    assert.ok(Date.now() < end, `only ${receiver.waiting.length} of ${count} messages came`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  return receiver.waiting.splice(0, count);
}

/** Nothing comes, and the credit is given back. */
export async function nothing(receiver) {
  receiver.add_credit(1);
  await new Promise((resolve) => setTimeout(resolve, NOTHING_MS));
  const drained = event(receiver, "receiver_drained");
  receiver.drain_credit();
  await drained;
  receiver.drain = false;
  assert.deepEqual(receiver.waiting, []);
}

/** Settle a delivery and wait for the broker's answer; a refusal is thrown. */
export async function settle(receiver, delivery, act) {
  const settled = new Promise((resolve) => receiver.outcomes.set(delivery, resolve));
  act(delivery);
  const state = await settled;
  receiver.outcomes.delete(delivery);
  if (state?.error) throw new AmqpError(state.error);
  return state?.constructor.composite_type;
}

export const accept = (receiver, { delivery }) => settle(receiver, delivery, (one) => one.accept());

/** The texts of so many messages, which are completed. */
export async function take(receiver, count) {
  const received = await receive(receiver, count);
  for (const one of received) await accept(receiver, one);
  return received.map(({ message }) => bodyOf(message));
}

/** A request to an entity's $management node; its answer's body. */
export async function manage(connection, entity, operation, body, properties = {}) {
  const address = `${entity}/$management`;
  const replyTo = rhea.generate_uuid();
  const session = connection.create_session();
  session.begin();
  const sender = session.open_sender({ target: { address } });
  const receiver = session.open_receiver({ source: { address }, target: { address: replyTo } });
  const answered = event(receiver, "message", "receiver_error");
  await event(sender, "sendable", "sender_error");
  sender.send({
    message_id: rhea.generate_uuid(),
    reply_to: replyTo,
    application_properties: { operation, ...properties },
    body,
  });
  const { message } = await answered;
  session.close();
  const { statusCode, statusDescription, errorCondition } = message.application_properties;
  if (statusCode >= 300) throw new AmqpError({ condition: errorCondition, description: statusDescription });
  return statusCode === 204 ? undefined : message.body;
}

/** Messages in the answer to a request, and their lock tokens. */
export const messagesIn = (body) =>
  (body?.messages ?? []).map((one) => ({
    message: rhea.message.decode(one.message),
    lockToken: one["lock-token"],
  }));

export const longs = (values) => rhea.types.wrap_array(values, 0x81);
export const uuids = (values) => rhea.types.wrap_array(values, 0x98);

/** The lock token a delivery's tag stands for: its first three groups are the other way round. */
export function lockToken({ delivery }) {
  const tag = Buffer.from(delivery.tag);
  return Buffer.concat([
    tag.subarray(0, 4).reverse(),
    tag.subarray(4, 6).reverse(),
    tag.subarray(6, 8).reverse(),
    tag.subarray(8),
  ]);
}

/** The AMQP condition that a promise ends with. */
export async function condition(promise) {
  try {
    await promise;
  } catch (error) {
    return error.code ?? String(error.stack);
  }
  return "no error";
}
