// The control API of a running broker, as far as the tests need it: a namespace for each test, waiting, the clock.
//
//   peeklock serve --storage memory:
//   cd examples/vitest && npm install && npm test

const ADDRESS = process.env.PEEKLOCK_URL ?? "http://localhost:5300";

async function request(method, path, body) {
  const answer = await fetch(`${ADDRESS}/$peeklock/v1${path}`, {
    method,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const content = await answer.json();
  if (!answer.ok) {
    throw new Error(`${method} ${path}: ${content.error.message}`);
  }
  return content;
}

/** A namespace with its own entities, key and clock. Tests in parallel do not see each other's messages. */
export class Namespace {
  static async create(topology) {
    const { name, connection_string: connectionString } = await request("POST", "/namespaces", { topology });
    return new Namespace(name, connectionString);
  }

  constructor(name, connectionString) {
    this.name = name;
    this.connectionString = connectionString;
  }

  request(method, path, body) {
    return request(method, `/namespaces/${this.name}${path}`, body);
  }

  /** Waits until conditions hold, without polling: see docs/control-api.md. */
  wait(...conditions) {
    return this.request("POST", "/wait", { conditions });
  }

  messages(query) {
    return this.request("GET", `/messages?${new URLSearchParams(query)}`).then((found) => found.messages);
  }

  advanceClock(seconds) {
    return this.request("POST", "/clock/advance", { seconds });
  }

  delete() {
    return request("DELETE", `/namespaces/${this.name}`);
  }
}
