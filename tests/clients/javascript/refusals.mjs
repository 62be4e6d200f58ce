import assert from "node:assert/strict";
import { environment } from "../node/trial.mjs";
import { connect, errorCode, send, take } from "./client.mjs";

export async function notFound(t) {
  const client = connect(t);
  const name = t.name("absent");
  assert.equal(await errorCode(send(client, name, "a")), "MessagingEntityNotFound");
  const receiver = client.createReceiver(name);
  assert.equal(await errorCode(receiver.receiveMessages(1)), "MessagingEntityNotFound");
  assert.equal(await errorCode(receiver.peekMessages(1)), "MessagingEntityNotFound");
}

export async function unauthorized(t) {
  const queue = await t.queue();
  const wrong = environment.connectionString.replace("SAS_KEY_VALUE", "not the key");
  // By default the SDK tries again for minutes: the key might be about to change.
  const client = connect(t, { retryOptions: { maxRetries: 0 } }, wrong);
  assert.equal(await errorCode(send(client, queue, "a")), "UnauthorizedAccess");
}

export async function quota(t) {
  const client = connect(t);
  const queue = await t.queue({ MaxSizeInMegabytes: 1 });
  const sender = client.createSender(queue);
  const body = Buffer.alloc(200_000);
  const fill = async () => {
    for (let count = 0; count < 8; count += 1) await sender.sendMessages({ body });
  };
  assert.equal(await errorCode(fill()), "QuotaExceeded");
}

export async function tooLarge(t) {
  const client = connect(t);
  const queue = await t.queue({ MaxMessageSizeInKilobytes: 256 });
  const sender = client.createSender(queue);
  const large = sender.sendMessages({ body: Buffer.alloc(300_000) });
  assert.equal(await errorCode(large), "MessageSizeExceeded");
  await sender.sendMessages({ body: "small" });
  assert.deepEqual(await take(client.createReceiver(queue), 1), ["small"]);
}
