import assert from "node:assert/strict";
import { bodies, connect, nothing, receive, send, take } from "./client.mjs";

const SQL = (expression) =>
  `<Filter i:type="SqlFilter"><SqlExpression>${expression}</SqlExpression></Filter>`;
const ACTION = (expression) =>
  `<Action i:type="SqlRuleAction"><SqlExpression>${expression}</SqlExpression></Action>`;
const CORRELATION = (xml) => `<Filter i:type="CorrelationFilter">${xml}</Filter>`;

export async function trueFilter(t) {
  const client = connect(t);
  const topic = await t.topic();
  for (const name of ["one", "two"]) await t.subscription(topic, name);
  await send(client, topic, "a", "b");
  for (const name of ["one", "two"]) {
    assert.deepEqual(await take(client.createReceiver(topic, name), 2), ["a", "b"]);
  }
}

export async function sqlFilter(t) {
  const client = connect(t);
  const topic = await t.topic();
  await t.subscription(topic, "sub");
  const xml = SQL("colour = 'red' AND size &gt; 10") + ACTION("SET matched = 'yes'");
  await t.rule(topic, "sub", "red", xml);
  const message = (body, colour, size) => ({ body, applicationProperties: { colour, size } });
  await send(client, topic, message("a", "red", 5), message("b", "red", 15), message("c", "blue", 15));
  const receiver = client.createReceiver(topic, "sub");
  const [found] = await receive(receiver, 1);
  assert.equal(found.body, "b");
  const { colour, size, matched } = found.applicationProperties;
  assert.deepEqual({ colour, size, matched }, { colour: "red", size: 15, matched: "yes" });
  await nothing(receiver);
}

export async function correlationFilter(t) {
  const client = connect(t);
  const topic = await t.topic();
  await t.subscription(topic, "sub");
  await t.rule(
    topic,
    "sub",
    "orders",
    CORRELATION(
      "<CorrelationId>7</CorrelationId><Label>order</Label><Properties><KeyValueOfstringanyType>" +
        '<Key>colour</Key><Value i:type="d6p1:string" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">' +
        "red</Value></KeyValueOfstringanyType></Properties>",
    ),
  );
  const message = (body, subject, colour) => ({
    body,
    subject,
    correlationId: "7",
    applicationProperties: { colour },
  });
  await send(
    client,
    topic,
    message("a", "order", "blue"),
    message("b", "order", "red"),
    message("c", "other", "red"),
  );
  const receiver = client.createReceiver(topic, "sub");
  assert.deepEqual(bodies(await receive(receiver, 1)), ["b"]);
  await nothing(receiver);
}

export async function ruleManagement(t) {
  const client = connect(t);
  const topic = await t.topic();
  await t.subscription(topic, "sub");
  const rules = client.createRuleManager(topic, "sub");
  const names = async () => {
    const found = [];
    for await (const rule of rules.listRules()) found.push(rule.name);
    return found.sort();
  };
  assert.deepEqual(await names(), ["$Default"]);
  await rules.createRule("sql", { sqlExpression: "colour = 'red'" }, { sqlExpression: "SET a = 1" });
  await rules.createRule("correlation", {
    subject: "order",
    applicationProperties: { colour: "blue" },
  });
  await rules.deleteRule("$Default");
  assert.deepEqual(await names(), ["correlation", "sql"]);
  for await (const rule of rules.listRules()) {
    if (rule.name === "sql") {
      assert.equal(rule.filter.sqlExpression, "colour = 'red'");
      assert.equal(rule.action.sqlExpression, "SET a = 1");
    } else {
      assert.equal(rule.filter.subject, "order");
      assert.deepEqual(rule.filter.applicationProperties, { colour: "blue" });
    }
  }
  const message = (body, colour) => ({ body, subject: "order", applicationProperties: { colour } });
  await send(client, topic, message("a", "red"), message("b", "blue"), message("c", "green"));
  const receiver = client.createReceiver(topic, "sub");
  assert.deepEqual(bodies(await receive(receiver, 2)), ["a", "b"]);
  await nothing(receiver);
}
