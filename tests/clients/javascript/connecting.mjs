import assert from "node:assert/strict";
import WebSocket from "ws";
import { environment, eventually } from "../node/trial.mjs";
import { connect, receive, send, take } from "./client.mjs";

async function thereAndBack(t, client) {
  const queue = await t.queue();
  await send(client, queue, "hello");
  assert.deepEqual(await take(client.createReceiver(queue), 1), ["hello"]);
}

export const emulatorString = (t) => thereAndBack(t, connect(t));

export const tls = (t) => thereAndBack(t, connect(t, {}, environment.tlsConnectionString));

export async function webSocket(t) {
  const options = { webSocketOptions: { webSocket: WebSocket } };
  await thereAndBack(t, connect(t, options, environment.tlsConnectionString));
}

export async function reconnectAfterRestart(t) {
  const client = connect(t);
  const queue = await t.queue();
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue);
  await sender.sendMessages([{ body: "handled" }, { body: "before" }]);
  const [handled] = await receive(receiver, 1);
  await receiver.completeMessage(handled);
  await t.restart();
  await sender.sendMessages({ body: "after" });
  assert.deepEqual(await take(receiver, 2), ["before", "after"]);
}

export async function cleanClose(t) {
  const before = await t.connections();
  const client = connect(t);
  const queue = await t.queue();
  await send(client, queue, "one", "two");
  const receiver = client.createReceiver(queue);
  await receive(receiver, 1);
  client.createReceiver(queue).subscribe({
    processMessage: async () => {},
    processError: async () => {},
  });
  await eventually(async () => (await t.connections()) > before, "a connection");
  const began = Date.now();
  await client.close();
  assert.ok(Date.now() - began < 2_000, `closing took ${Date.now() - began} ms`);
  await eventually(async () => (await t.connections()) === before, "no connection left");
}
