import assert from "node:assert/strict";
import { ServiceBusAdministrationClient } from "@azure/service-bus";
import { environment } from "../node/trial.mjs";
import { connect, receive, send } from "./client.mjs";

const administer = (connectionString = environment.adminConnectionString) =>
  new ServiceBusAdministrationClient(connectionString);

async function all(iterator) {
  const found = [];
  for await (const one of iterator) found.push(one);
  return found;
}

const names = (properties, key = "name") => properties.map((one) => one[key]);

async function refusal(promise) {
  const error = await promise.then(
    () => assert.fail("it was not refused"),
    (reason) => reason,
  );
  return [error.statusCode, error.code];
}

/** Where there is no queue or topic the service answers with an empty list, and so with 200. */
async function missing(promise) {
  assert.deepEqual(await refusal(promise), [200, "MessageEntityNotFoundError"]);
}

export async function queues(t) {
  const admin = administer();
  const name = t.name("queue");
  const made = await admin.createQueue(name, {
    lockDuration: "PT45S",
    maxDeliveryCount: 5,
    requiresSession: true,
    requiresDuplicateDetection: true,
    duplicateDetectionHistoryTimeWindow: "PT5M",
    defaultMessageTimeToLive: "P1D",
    deadLetteringOnMessageExpiration: true,
    userMetadata: "a <note> & more",
  });
  assert.equal(made.name, name);
  assert.deepEqual(await refusal(admin.createQueue(name)), [409, "MessageEntityAlreadyExistsError"]);
  const read = await admin.getQueue(name);
  assert.deepEqual(
    [read.lockDuration, read.maxDeliveryCount, read.requiresSession, read.userMetadata],
    ["PT45S", 5, true, "a <note> & more"],
  );
  assert.deepEqual(
    [read.requiresDuplicateDetection, read.duplicateDetectionHistoryTimeWindow],
    [true, "PT5M"],
  );
  assert.deepEqual(
    [read.defaultMessageTimeToLive, read.deadLetteringOnMessageExpiration, read.status],
    ["P1D", true, "Active"],
  );
  read.lockDuration = "PT1M";
  read.maxDeliveryCount = 7;
  read.status = "SendDisabled";
  const updated = await admin.updateQueue(read);
  assert.deepEqual([updated.lockDuration, updated.maxDeliveryCount], ["PT1M", 7]);
  assert.equal((await admin.getQueue(name)).status, "SendDisabled");
  const others = await Promise.all([1, 2, 3].map(() => t.queue()));
  const listed = names(await all(admin.listQueues()));
  for (const one of [name, ...others]) assert.ok(listed.includes(one), `${one} is not listed`);
  const pages = [];
  for await (const page of admin.listQueues().byPage({ maxPageSize: 2 })) pages.push(page.length);
  assert.ok(pages.length > 1 && pages.every((length) => length <= 2), `pages of ${pages}`);
  assert.equal(await admin.queueExists(name), true);
  await admin.deleteQueue(name);
  assert.equal(await admin.queueExists(name), false);
  await missing(admin.getQueue(name));
  assert.deepEqual(await refusal(admin.deleteQueue(name)), [404, "MessageEntityNotFoundError"]);
}

export async function topics(t) {
  const admin = administer();
  const name = t.name("topic");
  const made = await admin.createTopic(name, {
    requiresDuplicateDetection: true,
    defaultMessageTimeToLive: "PT2H",
    supportOrdering: true,
  });
  assert.equal(made.name, name);
  const read = await admin.getTopic(name);
  assert.deepEqual(
    [read.requiresDuplicateDetection, read.defaultMessageTimeToLive, read.supportOrdering],
    [true, "PT2H", true],
  );
  read.userMetadata = "changed";
  await admin.updateTopic(read);
  assert.equal((await admin.getTopic(name)).userMetadata, "changed");
  assert.ok(names(await all(admin.listTopics())).includes(name));
  assert.equal(await admin.topicExists(name), true);
  await admin.deleteTopic(name);
  assert.equal(await admin.topicExists(name), false);
  await missing(admin.getTopic(name));
}

export async function subscriptions(t) {
  const admin = administer();
  const topic = await t.topic();
  const target = await t.queue();
  await admin.createSubscription(topic, "sub", {
    lockDuration: "PT50S",
    maxDeliveryCount: 3,
    requiresSession: true,
    defaultRuleOptions: { name: "first", filter: { sqlExpression: "a = 1" } },
  });
  await admin.createSubscription(topic, "forwarding", { forwardTo: target });
  const read = await admin.getSubscription(topic, "sub");
  assert.deepEqual(
    [read.topicName, read.subscriptionName, read.lockDuration, read.maxDeliveryCount],
    [topic, "sub", "PT50S", 3],
  );
  assert.equal(read.requiresSession, true);
  assert.deepEqual(names(await all(admin.listRules(topic, "sub"))), ["first"]);
  assert.ok((await admin.getSubscription(topic, "forwarding")).forwardTo.endsWith(target));
  read.deadLetteringOnMessageExpiration = true;
  read.maxDeliveryCount = 4;
  await admin.updateSubscription(read);
  const changed = await admin.getSubscription(topic, "sub");
  assert.deepEqual(
    [changed.deadLetteringOnMessageExpiration, changed.maxDeliveryCount],
    [true, 4],
  );
  const listed = names(await all(admin.listSubscriptions(topic)), "subscriptionName");
  assert.deepEqual(listed.sort(), ["forwarding", "sub"]);
  await admin.deleteSubscription(topic, "sub");
  assert.equal(await admin.subscriptionExists(topic, "sub"), false);
  assert.deepEqual(await refusal(admin.getSubscription(topic, "sub")), [
    404,
    "MessageEntityNotFoundError",
  ]);
}

export async function rules(t) {
  const admin = administer();
  const topic = await t.topic();
  await admin.createSubscription(topic, "sub");
  await admin.createRule(
    topic,
    "sub",
    "sql",
    { sqlExpression: "colour = @colour", sqlParameters: { "@colour": "red", "@size": 3 } },
    { sqlExpression: "SET seen = TRUE" },
  );
  await admin.createRule(topic, "sub", "correlation", {
    correlationId: "7",
    subject: "order",
    contentType: "text/plain",
    applicationProperties: { colour: "red", size: 1.5, whole: 3, when: new Date(0), good: true },
  });
  const sql = await admin.getRule(topic, "sub", "sql");
  assert.equal(sql.filter.sqlExpression, "colour = @colour");
  assert.deepEqual(sql.filter.sqlParameters, { "@colour": "red", "@size": 3 });
  assert.equal(sql.action.sqlExpression, "SET seen = TRUE");
  const correlation = await admin.getRule(topic, "sub", "correlation");
  assert.deepEqual(
    [correlation.filter.correlationId, correlation.filter.subject, correlation.filter.contentType],
    ["7", "order", "text/plain"],
  );
  assert.deepEqual(correlation.filter.applicationProperties, {
    colour: "red",
    size: 1.5,
    whole: 3,
    when: new Date(0),
    good: true,
  });
  sql.filter = { sqlExpression: "size > 2" };
  await admin.updateRule(topic, "sub", sql);
  assert.equal((await admin.getRule(topic, "sub", "sql")).filter.sqlExpression, "size > 2");
  const listed = names(await all(admin.listRules(topic, "sub")));
  assert.deepEqual(listed.sort(), ["$Default", "correlation", "sql"]);
  await admin.deleteRule(topic, "sub", "$Default");
  assert.equal(await admin.ruleExists(topic, "sub", "$Default"), false);
  assert.deepEqual(
    await refusal(admin.createRule(topic, "sub", "wrong", { sqlExpression: "this is not" })),
    [400, "ServiceError"],
  );
}

/** The SDK's times are in milliseconds; it has no durations, and writes doubles as it shows them. */
export async function ruleValuePrecision(t) {
  const admin = administer();
  const topic = await t.topic();
  await admin.createSubscription(topic, "sub");
  const applicationProperties = {
    when: new Date("2030-01-02T03:04:05.123Z"),
    third: 1 / 3,
    huge: Number.MAX_VALUE,
    tiny: Number.MIN_VALUE,
    whole: 2 ** 31 - 1,
  };
  await admin.createRule(topic, "sub", "own", { applicationProperties });
  const { filter } = await admin.getRule(topic, "sub", "own");
  assert.deepEqual(filter.applicationProperties, applicationProperties);

  const value = (name, type, text) =>
    `<KeyValueOfstringanyType><Key>${name}</Key><Value i:type="d:${type}" ` +
    `xmlns:d="http://www.w3.org/2001/XMLSchema">${text}</Value></KeyValueOfstringanyType>`;
  const properties =
    value("when", "dateTime", "2030-01-02T03:04:05.1234567Z") + value("half", "double", "0.5");
  const xml = `<Filter i:type="CorrelationFilter"><Properties>${properties}</Properties></Filter>`;
  await t.rule(topic, "sub", "others", xml);
  const others = await admin.getRule(topic, "sub", "others");
  assert.deepEqual(others.filter.applicationProperties, {
    when: new Date("2030-01-02T03:04:05.123Z"),
    half: 0.5,
  });
}

export async function runtimeProperties(t) {
  const admin = administer(environment.connectionString); // the port for messaging does as well
  const client = connect(t);
  const queue = await t.queue();
  const sender = client.createSender(queue);
  await sender.sendMessages([{ body: "a" }, { body: "b" }, { body: "c" }]);
  const later = new Date((await t.now()).getTime() + 60_000);
  await sender.scheduleMessages([{ body: "later" }, { body: "later" }], later);
  const receiver = client.createReceiver(queue);
  const [bad] = await receive(receiver, 1);
  await receiver.deadLetterMessage(bad);
  const counts = await admin.getQueueRuntimeProperties(queue);
  assert.deepEqual(
    [counts.activeMessageCount, counts.scheduledMessageCount, counts.deadLetterMessageCount],
    [2, 2, 1],
  );
  assert.equal(counts.totalMessageCount, 5);
  assert.ok(counts.sizeInBytes > 0);
  assert.ok(counts.createdAt instanceof Date && counts.accessedAt >= counts.createdAt);

  const topic = await t.topic();
  await t.subscription(topic, "sub");
  await send(client, topic, "a");
  const about = await admin.getSubscriptionRuntimeProperties(topic, "sub");
  assert.deepEqual([about.activeMessageCount, about.totalMessageCount], [1, 1]);
  assert.equal((await admin.getTopicRuntimeProperties(topic)).subscriptionCount, 1);
  const found = await all(admin.listQueuesRuntimeProperties());
  assert.equal(found.find((one) => one.name === queue).scheduledMessageCount, 2);
  const namespace = await admin.getNamespaceProperties();
  assert.ok(namespace.name);
  assert.ok(["Basic", "Standard", "Premium"].includes(namespace.messagingSku));
}
