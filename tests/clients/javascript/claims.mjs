// A broker that is strict: keys of each claim, and batches filled to its limits.

import assert from "node:assert/strict";
import { ServiceBusAdministrationClient } from "@azure/service-bus";
import { strict } from "../node/trial.mjs";
import { bodies, connect, errorCode, receive, send, take } from "./client.mjs";

const AT_ONCE = { retryOptions: { maxRetries: 0 } };
const DAY_MS = 86_400_000;

const status = (promise) =>
  promise.then(
    () => "no error",
    (error) => error.statusCode,
  );

export async function claims(t) {
  const queue = strict.queue;
  const later = new Date(Date.now() + DAY_MS);

  const sending = connect(t, AT_ONCE, strict.send);
  await send(sending, queue, "sent");
  const deaf = sending.createReceiver(queue);
  assert.equal(await errorCode(deaf.receiveMessages(1)), "UnauthorizedAccess");
  assert.equal(await errorCode(deaf.peekMessages(1)), "UnauthorizedAccess");

  const listening = connect(t, AT_ONCE, strict.listen);
  const mute = listening.createSender(queue);
  assert.equal(await errorCode(mute.sendMessages({ body: "x" })), "UnauthorizedAccess");
  assert.equal(await errorCode(mute.scheduleMessages({ body: "x" }, later)), "UnauthorizedAccess");
  const receiver = listening.createReceiver(queue);
  assert.deepEqual(bodies(await receiver.peekMessages(10)), ["sent"]);
  assert.deepEqual(await take(receiver, 1), ["sent"]);

  for (const claim of [strict.send, strict.listen]) {
    const admin = new ServiceBusAdministrationClient(claim);
    assert.equal(await status(admin.getQueue(queue)), 401);
    assert.equal(await status(admin.createQueue(t.name("refused"))), 401);
  }

  const admin = new ServiceBusAdministrationClient(strict.manage);
  const made = await admin.createQueue(t.name("managed"));
  const managing = connect(t, AT_ONCE, strict.manage);
  await send(managing, made.name, "managed");
  assert.deepEqual(await take(managing.createReceiver(made.name), 1), ["managed"]);
  await admin.deleteQueue(made.name);
}

/** Smaller and smaller messages are added, so that hardly a byte is left. */
export async function fullBatch(t) {
  const client = connect(t, AT_ONCE, strict.manage);
  const sender = client.createSender(strict.queue);
  const batch = await sender.createMessageBatch();
  for (const size of [5_000, 500, 50, 5, 0]) {
    while (batch.tryAddMessage({ body: Buffer.alloc(size) }));
  }
  await sender.sendMessages(batch);
  const receiver = client.createReceiver(strict.queue, { receiveMode: "receiveAndDelete" });
  assert.equal((await receive(receiver, batch.count)).length, batch.count);
  return `${batch.sizeInBytes} of ${batch.maxSizeInBytes} bytes`;
}
