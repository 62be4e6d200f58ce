import assert from "node:assert/strict";
import { environment, types } from "../node/trial.mjs";
import { ofTypes, readBack } from "../node/types.mjs";
import { connect, receive } from "./client.mjs";

/** Application properties the SDK takes: it chooses the AMQP type, by the value. */
function expressible(rows) {
  const all = [
    ...ofTypes(rows, "string").map((row) => [row.name, row.value]),
    ...ofTypes(rows, "boolean").map((row) => [row.name, row.value === "true"]),
    ...ofTypes(rows, "uint", "double").map((row) => [row.name, Number(row.value)]),
    ...ofTypes(rows, "timestamp").map((row) => [row.name, new Date(row.value)]),
    ...ofTypes(rows, "null").map((row) => [row.name, null]),
  ];
  return Object.fromEntries(all);
}

export async function roundTrip(t) {
  const queue = await t.queue({ MaxDeliveryCount: 100 }, `${environment.run}-types-javascript`);
  const rows = types();
  const text = Object.fromEntries(rows.map((row) => [row.name, row.value]));
  const applicationProperties = expressible(rows);
  const fields = rows.filter((row) => row.section !== "application-properties");
  const written = [...fields.map((row) => row.name), ...Object.keys(applicationProperties)];
  applicationProperties.written = written.sort().join(",");
  await connect(t)
    .createSender(queue)
    .sendMessages({
      body: Buffer.from(text.body, "hex"),
      messageId: text["message-id"],
      correlationId: text["correlation-id"],
      subject: text.subject,
      contentType: text["content-type"],
      to: text.to,
      replyTo: text["reply-to"],
      sessionId: text["session-id"],
      replyToSessionId: text["reply-to-session-id"],
      partitionKey: text["partition-key"],
      timeToLive: 3_600_000,
      applicationProperties,
    });
  await read(t, queue);
}

export const readTypes = (queue) => (t) => read(t, queue);

function read(t, queue) {
  const client = connect(t);
  return readBack(types(), queue, async (name) => {
    // By default the SDK turns dates into numbers, and on the way mangles what else is an object.
    const receiver = client.createReceiver(name, { skipConvertingDate: true });
    const [message] = await receive(receiver, 1);
    await receiver.abandonMessage(message);
    assert.ok(message.applicationProperties, "the properties are lost");
    const fields = {
      body: message.body,
      "message-id": message.messageId,
      "correlation-id": message.correlationId,
      subject: message.subject,
      "content-type": message.contentType,
      to: message.to,
      "reply-to": message.replyTo,
      "session-id": message.sessionId,
      "reply-to-session-id": message.replyToSessionId,
      "partition-key": message.partitionKey,
      "time-to-live": message.timeToLive,
    };
    return { applicationProperties: message.applicationProperties, fields };
  });
}
