import { ServiceBusClient } from "@azure/service-bus";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Namespace } from "./peeklock.js";

const TOPOLOGY = { queues: { orders: { max_delivery_count: 3 } } };
const WEEK_S = 7 * 24 * 60 * 60;
let namespace;
let client;

beforeEach(async () => {
  namespace = await Namespace.create(TOPOLOGY);
  client = new ServiceBusClient(namespace.connectionString);
});

afterEach(async () => {
  await client.close();
  await namespace.delete();
});

test("an order that fails three times becomes a dead letter", async () => {
  await client.createSender("orders").sendMessages({ body: "no such thing", messageId: "order-1" });
  client.createReceiver("orders").subscribe({
    processMessage: async () => {
      throw new Error("there is no such thing"); // the SDK abandons the message
    },
    processError: async () => {},
  });
  await namespace.wait({ entity: "orders", state: "dead_lettered", at_least: 1 });
  const [dead] = await namespace.messages({ entity: "orders", sub_queue: "dead_letter" });
  expect(dead.message_id).toBe("order-1");
  expect(dead.dead_letter.reason).toBe("MaxDeliveryCountExceeded");
});

test("a reminder arrives a week later", async () => {
  const nextWeek = new Date(Date.now() + WEEK_S * 1000);
  await client.createSender("orders").scheduleMessages({ body: "pay" }, nextWeek);
  await namespace.wait({ entity: "orders", state: "scheduled", equals: 1 });
  await namespace.advanceClock(WEEK_S + 1);
  const receiver = client.createReceiver("orders");
  const [reminder] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
  expect(reminder.body).toBe("pay");
  await receiver.completeMessage(reminder);
  await namespace.wait({ is: "settled" });
});
