// Faults that the broker is told to make, as users of the SDK see them: first without, then with retries.

import assert from "node:assert/strict";
import { connect, errorCode, take } from "./client.mjs";

// The SDK does not notice that a link has ended for a message that it has sent: it waits for the answer.
const timeoutInMs = 1_000;
const QUICK = { maxRetries: 3, retryDelayInMs: 20, timeoutInMs };

/** The codes and the bodies: of a client that does not try again, and of one that does. */
async function both(t, action, occurrence = { nth: 1 }) {
  const queue = await t.queue();
  const send = (options) =>
    connect(t, { retryOptions: options }).createSender(queue).sendMessages({ body: "a" });
  await t.fault({ operation: "send", entity: queue, occurrence: { nth: 1 }, action });
  const code = await errorCode(send({ maxRetries: 0, timeoutInMs }));
  const name = await t.fault({ operation: "send", entity: queue, occurrence, action });
  await send(QUICK);
  const hits = await t.hits(name);
  return { code, hits, queue };
}

async function left(t, queue, count) {
  const receiver = connect(t).createReceiver(queue);
  return (await take(receiver, count)).length === count && (await receiver.peekMessages(1)).length === 0;
}

export async function serverBusy(t) {
  const { code, hits, queue } = await both(t, { kind: "server_busy" }, { first: 2 });
  assert.deepEqual([code, hits], ["ServiceBusy", 2]);
  assert.ok(await left(t, queue, 1));
  return code;
}

export async function detach(t) {
  const { code, hits, queue } = await both(t, { kind: "detach" });
  assert.equal(hits, 1);
  assert.ok(await left(t, queue, 1));
  return code;
}

/** A client that tries again sends the message again; the broker has the first one only if it was stored. */
export const drop = (when, stored) => async (t) => {
  const { code, hits, queue } = await both(t, { kind: "drop_connection", when });
  assert.equal(hits, 1);
  assert.ok(await left(t, queue, stored));
  return code;
};

export const scenarios = [
  ["fault-server-busy", serverBusy],
  ["fault-detach", detach],
  ["fault-drop-before", drop("before", 1)],
  ["fault-drop-after", drop("after", 3)],
];
