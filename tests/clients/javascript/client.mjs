// The moves that most scenarios make, with the SDK's usual options.

import assert from "node:assert/strict";
import { ServiceBusClient } from "@azure/service-bus";
import { environment } from "../node/trial.mjs";

const WAIT_MS = 10_000; // long enough for what must come
const NOTHING_MS = 400; // how long to look for what must not come

/** A client that is closed when the scenario ends. */
export function connect(t, options = {}, connectionString = environment.connectionString) {
  const client = new ServiceBusClient(connectionString, options);
  t.finally(() => client.close());
  return client;
}

export async function send(client, entity, ...messages) {
  const sender = client.createSender(entity);
  await sender.sendMessages(messages.map(asMessage));
  await sender.close();
}

/** Exactly so many messages, however many calls it takes. */
export async function receive(receiver, count) {
  const received = [];
  while (received.length < count) {
    const more = await receiver.receiveMessages(count - received.length, {
      maxWaitTimeInMs: WAIT_MS,
    });
    assert.ok(more.length, `only ${received.length} of ${count} messages came`);
    received.push(...more);
  }
  return received;
}

/** The bodies of so many messages, which are completed. */
export async function take(receiver, count) {
  const received = await receive(receiver, count);
  for (const message of received) await receiver.completeMessage(message);
  return bodies(received);
}

export async function nothing(receiver) {
  const received = await receiver.receiveMessages(1, { maxWaitTimeInMs: NOTHING_MS });
  assert.deepEqual(bodies(received), []);
}

export const bodies = (messages) => messages.map((message) => message.body);

/** The code of the SDK's error that a promise ends with, at once: none of them is worth a retry. */
export async function errorCode(promise) {
  const began = Date.now();
  try {
    await promise;
  } catch (error) {
    assert.ok(Date.now() - began < 10_000, `the error came after ${Date.now() - began} ms`);
    assert.equal(error.name, "ServiceBusError", String(error.stack));
    return error.code;
  }
  return "no error";
}

function asMessage(message) {
  return typeof message === "string" ? { body: message } : message;
}
