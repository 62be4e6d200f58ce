// What every program for Node has in common: the lines between it and the runner (SCENARIOS.md),
// entities to try things on, and the broker's clock. It knows no client library.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const SCENARIO_LIMIT_MS = 30_000;
const SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";

export const environment = {
  host: process.env.PEEKLOCK_HOST,
  amqpPort: Number(process.env.PEEKLOCK_AMQP_PORT),
  httpPort: Number(process.env.PEEKLOCK_HTTP_PORT),
  connectionString: process.env.PEEKLOCK_CONNECTION_STRING,
  adminConnectionString: process.env.PEEKLOCK_ADMIN_CONNECTION_STRING,
  tlsConnectionString: process.env.PEEKLOCK_TLS_CONNECTION_STRING,
  caFile: process.env.PEEKLOCK_CA_FILE,
  run: process.env.PEEKLOCK_RUN,
};

/** The strict broker: a connection string for each claim, and a queue nobody else uses. */
export const strict = {
  send: process.env.PEEKLOCK_STRICT_SEND_CONNECTION_STRING,
  listen: process.env.PEEKLOCK_STRICT_LISTEN_CONNECTION_STRING,
  manage: process.env.PEEKLOCK_STRICT_MANAGE_CONNECTION_STRING,
  queue: process.env.PEEKLOCK_STRICT_QUEUE,
};

const base = `http://${environment.host}:${environment.httpPort}`;

const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
let entities = 0;

class Skipped extends Error {}

/** A scenario that the client has no way to do. */
export const skip = (reason) => () => {
  throw new Skipped(reason);
};

/** Rows of types.json. */
export const types = () => JSON.parse(readFileSync(process.env.PEEKLOCK_TYPES_FILE, "utf8")).rows;

/** What one scenario needs of the broker. Everything it opens is closed when it ends. */
export class Trial {
  #cleanups = [];

  /** Have something done when the scenario ends, the last first. */
  finally(action) {
    this.#cleanups.push(action);
  }

  async end() {
    for (const action of this.#cleanups.reverse()) await action();
  }

  /** The name of an entity nobody else uses. */
  name(kind = "entity") {
    entities += 1;
    return `${environment.run}-${kind}-${process.pid}-${entities}`;
  }

  /** A new queue; properties by their Service Bus names. */
  async queue(properties = {}, name = this.name("queue")) {
    await put(name, "QueueDescription", properties);
    return name;
  }

  async topic(properties = {}) {
    const name = this.name("topic");
    await put(name, "TopicDescription", properties);
    return name;
  }

  async subscription(topic, name, properties = {}) {
    await put(`${topic}/Subscriptions/${name}`, "SubscriptionDescription", properties);
    return name;
  }

  /** In place of the rule a subscription begins with: `<Filter …>` and `<Action …>` as XML. */
  async rule(topic, subscription, name, xml) {
    const rules = `${topic}/Subscriptions/${subscription}/Rules`;
    await request("DELETE", `${rules}/$Default`, undefined, [200, 404]);
    await put(`${rules}/${name}`, "RuleDescription", {}, xml);
  }

  /** Move the broker's clock; its time afterwards. */
  async advance(seconds) {
    const answer = await fetch(`${base}/$peeklock/clock`, {
      method: "POST",
      body: JSON.stringify({ advance_ms: seconds * 1000 }),
    });
    assert.equal(answer.status, 200);
    return new Date((await answer.json()).now_ms);
  }

  /** The broker's time. */
  now() {
    return this.advance(0);
  }

  /** Stop the broker and start it again; the clock is right again afterwards. */
  async restart() {
    report({ control: "restart" });
    assert.equal((await input.next()).value, "restarted");
  }

  /** Make operations fail (docs/control-api.md, Faults); the name of the rule. */
  async fault(rule) {
    const answer = await fetch(`${base}/$peeklock/v1/faults`, {
      method: "POST",
      body: JSON.stringify(rule),
    });
    assert.equal(answer.status, 201, await answer.clone().text());
    return (await answer.json()).name;
  }

  /** How often a rule has acted. */
  async hits(name) {
    return (await (await fetch(`${base}/$peeklock/v1/faults/${name}`)).json()).hits;
  }

  /** How many AMQP connections the broker has. */
  async connections() {
    const text = await (await fetch(`${base}/metrics`)).text();
    return Number(/^peeklock_connections (\S+)$/m.exec(text)[1]);
  }
}

async function put(path, kind, properties, xml = "") {
  const elements = Object.entries(properties).map(([name, value]) => `<${name}>${value}</${name}>`);
  const body =
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">' +
    `<${kind} xmlns="${SERVICE_BUS}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">` +
    `${elements.join("")}${xml}</${kind}></content></entry>`;
  await request("PUT", path, body, [201]);
}

async function request(method, path, body, expected) {
  const answer = await fetch(`${base}/${path}?api-version=2021-05`, { method, body });
  const text = await answer.text();
  assert.ok(expected.includes(answer.status), `${method} ${path}: ${answer.status} ${text}`);
}

/** Wait until something holds that must come to hold soon. */
export async function eventually(holds, what, limitMs = 20_000) {
  const end = Date.now() + limitMs;
  while (!(await holds())) {
    assert.ok(Date.now() < end, `${what}: not within ${limitMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Run `[id, scenario]` pairs one after the other, only those of the short list if that is wanted. */
export async function run(versions, scenarios) {
  report({ versions });
  for (const [id, scenario, isShort] of scenarios) {
    if (!process.env.PEEKLOCK_SHORT || isShort) await runOne(id, scenario);
  }
  process.stdout.write("", () => process.exit(0)); // whatever a failed scenario has left open
}

async function runOne(id, scenario) {
  const trial = new Trial();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("took too long")), SCENARIO_LIMIT_MS);
  });
  const work = async () => {
    try {
      return await scenario(trial);
    } finally {
      await trial.end();
    }
  };
  try {
    const detail = await Promise.race([work(), late]);
    report({ scenario: id, outcome: "passed", detail: detail ?? "" });
  } catch (error) {
    if (error instanceof Skipped) {
      report({ scenario: id, outcome: "skipped", detail: error.message });
    } else {
      console.error(`${id}:`, error);
      const text = [error.code, error.message].filter(Boolean).join(": ");
      report({ scenario: id, outcome: "failed", detail: text.replace(/\s+/g, " ") });
    }
  } finally {
    clearTimeout(timer);
  }
}

function report(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
