import rhea from "rhea";
import { environment, types } from "../node/trial.mjs";
import { apartOf, readBack } from "../node/types.mjs";
import { connect, openReceiver, openSender, receive, send, settle, text } from "./client.mjs";

const wide = (value, write) => {
  const bytes = Buffer.alloc(8);
  bytes[write](BigInt(value));
  return bytes;
};

/** Each type of the table in rhea's words. */
const ENCODERS = {
  string: (value) => rhea.types.wrap_string(value),
  symbol: (value) => rhea.types.wrap_symbol(value),
  boolean: (value) => value === "true",
  byte: (value) => rhea.types.wrap_byte(Number(value)),
  ubyte: (value) => rhea.types.wrap_ubyte(Number(value)),
  short: (value) => rhea.types.wrap_short(Number(value)),
  ushort: (value) => rhea.types.wrap_ushort(Number(value)),
  int: (value) => rhea.types.wrap_int(Number(value)),
  uint: (value) => rhea.types.wrap_uint(Number(value)),
  long: (value) => rhea.types.wrap_long(wide(value, "writeBigInt64BE")),
  ulong: (value) => rhea.types.wrap_ulong(wide(value, "writeBigUInt64BE")),
  float: (value) => rhea.types.wrap_float(Number(value)),
  double: (value) => rhea.types.wrap_double(Number(value)),
  char: (value) => rhea.types.wrap_char(value.codePointAt(0)),
  timestamp: (value) => rhea.types.wrap_timestamp(Date.parse(value)),
  uuid: (value) => rhea.types.wrap_uuid(Buffer.from(value.replaceAll("-", ""), "hex")),
  binary: (value) => rhea.types.wrap_binary(Buffer.from(value, "hex")),
  null: () => null,
};

export async function roundTrip(t) {
  const queue = await t.queue({ MaxDeliveryCount: 100 }, `${environment.run}-types-rhea`);
  const rows = types();
  const value = Object.fromEntries(rows.map((row) => [row.name, row.value]));
  const own = rows.filter((row) => row.section === "application-properties" && row.type in ENCODERS);
  const encoded = (some) =>
    Object.fromEntries(some.map((row) => [row.name, ENCODERS[row.type](row.value)]));
  const fields = rows.filter((row) => row.section !== "application-properties");
  const written = [...fields, ...own].map((row) => row.name).sort().join(",");
  const connection = await connect(t);
  await send(await openSender(connection, queue), {
    message_id: value["message-id"],
    correlation_id: value["correlation-id"],
    subject: value.subject,
    content_type: value["content-type"],
    to: value.to,
    reply_to: value["reply-to"],
    group_id: value["session-id"],
    reply_to_group_id: value["reply-to-session-id"],
    ttl: 3_600_000,
    message_annotations: { "x-opt-partition-key": value["partition-key"] },
    application_properties: { ...encoded(own.filter((row) => !row.apart)), written },
    body: rhea.message.data_section(Buffer.from(value.body, "hex")),
  });
  const apart = await t.queue({ MaxDeliveryCount: 100 }, apartOf(queue));
  await send(await openSender(connection, apart), {
    application_properties: encoded(own.filter((row) => row.apart)),
    body: text("apart"),
  });
  await read(connection, queue);
}

export const readTypes = (queue) => async (t) => read(await connect(t), queue);

function read(connection, queue) {
  return readBack(types(), queue, async (name) => {
    const receiver = await openReceiver(connection, name);
    const [{ message, delivery }] = await receive(receiver, 1);
    await settle(receiver, delivery, (one) => one.release());
    const fields = {
      "message-id": message.message_id,
      "correlation-id": message.correlation_id,
      subject: message.subject,
      "content-type": message.content_type,
      to: message.to,
      "reply-to": message.reply_to,
      "session-id": message.group_id,
      "reply-to-session-id": message.reply_to_group_id,
      "partition-key": message.message_annotations["x-opt-partition-key"],
      "time-to-live": message.ttl,
      body: message.body.content,
    };
    return { applicationProperties: message.application_properties, fields };
  });
}
