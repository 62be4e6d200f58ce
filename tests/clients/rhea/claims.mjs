// A broker that is strict: keys of each claim, and batches filled to its limits.

import assert from "node:assert/strict";
import rhea from "rhea";
import { strict } from "../node/trial.mjs";
import {
  condition,
  connect,
  openReceiver,
  openSender,
  parts,
  send,
  sendTexts,
  take,
} from "./client.mjs";

const BATCH_FORMAT = 0x80013700;
const REFUSED = "amqp:unauthorized-access";

function strictly(t, connectionString) {
  const { Endpoint, SharedAccessKeyName, SharedAccessKey } = parts(connectionString);
  const { hostname, port } = new URL(Endpoint);
  const key = { username: SharedAccessKeyName, password: SharedAccessKey };
  return connect(t, { host: hostname, port: Number(port), ...key });
}

export async function claims(t) {
  const queue = strict.queue;
  const sending = await strictly(t, strict.send);
  await sendTexts(sending, queue, "sent");
  assert.equal(await condition(openReceiver(sending, queue)), REFUSED);
  const listening = await strictly(t, strict.listen);
  assert.equal(await condition(openSender(listening, queue)), REFUSED);
  assert.deepEqual(await take(await openReceiver(listening, queue), 1), ["sent"]);
  const managing = await strictly(t, strict.manage);
  await sendTexts(managing, queue, "managed");
  assert.deepEqual(await take(await openReceiver(managing, queue), 1), ["managed"]);
}

/** Smaller and smaller messages are added, so that hardly a byte is left. */
export async function fullBatch(t) {
  const connection = await strictly(t, strict.manage);
  const sender = await openSender(connection, strict.queue);
  const limit = sender.remote.attach.max_message_size;
  const encode = (inner) => rhea.message.encode({ body: rhea.message.data_sections(inner) });
  const inner = [];
  for (const size of [5_000, 500, 50, 5, 0]) {
    const one = rhea.message.encode({ body: rhea.message.data_section(Buffer.alloc(size)) });
    while (encode([...inner, one]).length <= limit) inner.push(one);
  }
  await send(sender, encode(inner), BATCH_FORMAT);
  await take(await openReceiver(connection, strict.queue), inner.length);
  return `${encode(inner).length} of ${limit} bytes`;
}
