// Requests to the control API, and its streams. The only module that talks to the broker.

const BASE = "/$peeklock/v1";
const TOKEN = "peeklock.token";
const RETRY_MS = [500, 1000, 2000, 5000];

/** A refusal of the API, or no answer at all (status 0). The message is a sentence. */
export class ApiError extends Error {
  constructor(status, code, message, field) {
    super(message);
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

let namespace = null;
let onUnauthorized = () => {};

/** Requests concern this namespace from now on; null for the default namespace. */
export function setNamespace(name) {
  namespace = name;
}

/** Is called with the sentence of each refusal because of a missing or wrong token. */
export function whenUnauthorized(handler) {
  onUnauthorized = handler;
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  clear: () => sessionStorage.removeItem(TOKEN),
};

function address(path, query, scope) {
  const inNamespace = scope !== "broker" && namespace !== null;
  const prefix = inNamespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given).toString();
  return BASE + prefix + path + (text ? `?${text}` : "");
}

function headers(more) {
  const authorization = token.get();
  return authorization ? { ...more, Authorization: authorization } : more;
}

async function refusal(response, isQuiet = false) {
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    // The answer is no JSON: something between the page and the broker has written it.
  }
  const message = error?.message ?? `The broker answered with status ${response.status}.`;
  if (response.status === 401 && !isQuiet) onUnauthorized(message);
  return new ApiError(response.status, error?.code ?? "unknown", message, error?.field ?? null);
}

async function send(method, path, { query, body, scope, signal, isQuiet } = {}) {
  let response;
  try {
    response = await fetch(address(path, query, scope), {
      method,
      headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The broker does not answer. It may have been stopped.");
  }
  if (!response.ok) throw await refusal(response, isQuiet);
  return response.json();
}

export const get = (path, query, options) => send("GET", path, { query, ...options });
export const post = (path, body = {}, options) => send("POST", path, { body, ...options });
export const put = (path, body = {}, options) => send("PUT", path, { body, ...options });
export const remove = (path, options) => send("DELETE", path, options);

/**
 * Reads server-sent events until the returned function is called. `fetch` and not EventSource, because only
 * `fetch` can send a token. While the page is hidden nothing is read: browsers allow few connections to one host.
 * `on` has the functions event(data, name), open() and failed(error), and `isOnce` if the stream is not to be opened
 * again when the broker ends it.
 */
export function stream(path, query, on) {
  let controller = null;
  let timer = null;
  let failures = 0;
  let isClosed = false;

  async function read() {
    const current = new AbortController();
    controller = current;
    try {
      const response = await fetch(address(path, query), { headers: headers({}), cache: "no-store", signal: current.signal });
      if (!response.ok) throw await refusal(response);
      failures = 0;
      on.open?.();
      await readEvents(response.body.getReader(), on.event);
      throw new ApiError(0, "ended", "The broker has ended the connection.");
    } catch (error) {
      if (isClosed || current.signal.aborted) return;
      const known = error instanceof ApiError ? error : new ApiError(0, "unreachable", "The broker does not answer. It may have been stopped.");
      on.failed?.(known);
      if (on.isOnce || (known.status >= 400 && known.status !== 429)) return;
      timer = setTimeout(read, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
      failures += 1;
    }
  }

  function pauseOrResume() {
    clearTimeout(timer);
    controller?.abort();
    if (!document.hidden) read();
  }

  document.addEventListener("visibilitychange", pauseOrResume);
  if (!document.hidden) read();
  return () => {
    isClosed = true;
    document.removeEventListener("visibilitychange", pauseOrResume);
    clearTimeout(timer);
    controller?.abort();
  };
}

async function readEvents(reader, deliver) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    let end = text.indexOf("\n\n");
    for (; end >= 0; end = text.indexOf("\n\n")) {
      const event = readEvent(text.slice(0, end));
      text = text.slice(end + 2);
      if (event) deliver(event.data, event.name);
    }
  }
}

function readEvent(block) {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return data ? { name, data: JSON.parse(data) } : null;
}
