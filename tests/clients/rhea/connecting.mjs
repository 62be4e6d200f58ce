import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import rhea from "rhea";
import WebSocket from "ws";
import { environment, eventually } from "../node/trial.mjs";
import {
  bodyOf,
  closed,
  condition,
  connect,
  openReceiver,
  openSender,
  receive,
  send,
  sendTexts,
  take,
  text,
} from "./client.mjs";

const authority = () => readFileSync(environment.caFile);

async function thereAndBack(t, options) {
  const connection = await connect(t, options);
  const queue = await t.queue();
  await sendTexts(connection, queue, "hello");
  assert.deepEqual(await take(await openReceiver(connection, queue), 1), ["hello"]);
}

export async function emulatorString(t) {
  await thereAndBack(t);
  await thereAndBack(t, { username: undefined, password: undefined }); // no SASL at all
  await thereAndBack(t, { username: "anonymous", password: undefined }); // SASL ANONYMOUS
  return "with the host, the port and the key that it names";
}

export async function tls(t) {
  await thereAndBack(t, { transport: "tls", host: "localhost", ca: authority() });
}

export async function webSocket(t) {
  const through = rhea.create_container().websocket_connect(WebSocket);
  const path = "$servicebus/websocket";
  const secure = `wss://localhost:${environment.httpPort}/${path}`;
  const plain = `ws://${environment.host}:${environment.httpPort}/${path}`;
  for (const [url, options] of [
    [secure, { ca: authority() }],
    [plain, {}],
  ]) {
    await thereAndBack(t, { connection_details: through(url, ["AMQPWSB10"], options) });
  }
}

export async function unauthorized(t) {
  const wrong = connect(t, { password: "not the key" });
  assert.equal(await condition(wrong), "amqp:unauthorized-access");
}

export async function reconnectAfterRestart(t) {
  const connection = await connect(t, { reconnect: true, initial_reconnect_delay: 50 });
  const queue = await t.queue();
  const sender = await openSender(connection, queue);
  const received = [];
  const receiver = connection.open_receiver(queue);
  await send(sender, { body: text("before") });
  receiver.on("message", ({ message }) => received.push(bodyOf(message)));
  await eventually(() => received.length === 1, "the first message");
  const back = new Promise((resolve) => sender.once("sendable", resolve));
  await t.restart();
  await back;
  await send(sender, { body: text("after") });
  await eventually(() => received.length === 2, "the second message");
  assert.deepEqual(received, ["before", "after"]);
}

export async function cleanClose(t) {
  const before = await t.connections();
  const connection = await connect(t);
  const queue = await t.queue();
  await sendTexts(connection, queue, "one");
  await receive(await openReceiver(connection, queue), 1);
  assert.equal(await t.connections(), before + 1);
  await closed(connection);
  await eventually(async () => (await t.connections()) === before, "no connection left");
}
