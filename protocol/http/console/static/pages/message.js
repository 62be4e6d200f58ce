// Message: body, properties with their AMQP types, why it is a dead letter, its history, and what can be done with it.

import { html, useMemo } from "../vendor/htm-preact.module.js";
import { ApiError, get, post } from "../api.js";
import { Body, fromBase64 } from "../bodies.js";
import { bytes, duration, number, oneLine, plural, shown, visible } from "../format.js";
import { useRow } from "../live.js";
import { go, link } from "../router.js";
import { Age, Copy, Empty, Failure, Moment, ask, attempt, useLoaded } from "../widgets.js";
import { Timeline } from "./timeline.js";

const QUEUES = { main: "", dead_letter: "dead letters", transfer_dead_letter: "transfer dead letters" };
const OWN = ["message_id", "session_id", "subject", "correlation_id", "to", "reply_to", "reply_to_session_id", "content_type", "content_encoding", "user_id", "creation_time", "absolute_expiry_time", "group_sequence"];

export default function Message({ route }) {
  const [path = "", subQueue = "main", sequenceNumber = ""] = route.rest;
  const row = useRow(path);
  // A message that was locked and abandoned between two samples changes the rates only.
  const counts = JSON.stringify(row && [row.counts, row.incoming_per_s, row.outgoing_per_s]);
  const [message, error, reload] = useLoaded(() => load(path, subQueue, sequenceNumber), [path, subQueue, sequenceNumber, counts]);
  const data = useMemo(() => fromBase64(message?.body), [message?.body]);
  const back = link("entity", [path], { sub_queue: subQueue === "main" ? "" : subQueue });
  const isGone = error?.code === "message_not_found";
  const head = html`<p class="crumbs"><a href=${link("overview")}>Overview</a> / <a href=${link("entity", [path])}>${oneLine(path)}</a>${subQueue !== "main" && html` / <a href=${back}>${QUEUES[subQueue]}</a>`}</p>`;
  if (error && !message && isGone) {
    return html`<div class="page">${head}<${Empty} title="The message is not here any more"><p>It was completed, moved or deleted. Its history says what happened, if it was recorded.</p><//>
      <${Timeline} query=${{ entity: path, sub_queue: subQueue, sequence_number: sequenceNumber }} /></div>`;
  }
  if (error && !message) return html`<div class="page">${head}<${Failure} error=${error} retry=${reload} /></div>`;
  if (!message) return null;
  return html`<div class="page">
    <div>${head}
      <div class="heading">
        <h1>${message.message_id === null ? `Message ${message.sequence_number}` : visible(shown(message.message_id))}</h1>
        <span class=${`tag ${message.state === "locked" ? "accent" : message.state === "active" ? "" : "warn"}`}>${message.state}</span>
        ${subQueue !== "main" && html`<span class="tag bad">dead letter</span>`}
        ${isGone && html`<span class="tag warn">gone</span>`}
        <${Actions} message=${message} path=${path} subQueue=${subQueue} isGone=${isGone} reload=${reload} />
      </div>
    </div>
    ${isGone && html`<div class="failure" role="status"><p>The message is not in this queue any more. What you see is its last state; its history says what happened.</p></div>`}
    ${message.dead_letter && html`<${Why} message=${message} />`}
    <${Body} data=${data} contentType=${message.content_type} encoding=${message.content_encoding} section=${message.types.body?.body} name=${`message-${message.sequence_number}`} />
    <div class="columns">
      <${Delivery} message=${message} />
      <${Values} title="Properties" values=${Object.fromEntries(OWN.filter((name) => message[name] !== null).map((name) => [name, message[name]]))} types=${message.types.properties} none="No properties are set." />
      <${Values} title="Application properties" values=${message.application_properties} types=${message.types.application_properties} none="No application properties." />
      <${Values} title="Annotations" values=${{ ...message.annotations, ...message.delivery_annotations }} types=${{ ...message.types.annotations, ...message.types.delivery_annotations }} none="No annotations besides those of the broker." />
    </div>
    <${Timeline} query=${{ entity: path, sub_queue: subQueue, sequence_number: sequenceNumber }} messageId=${message.message_id} changed=${`${counts} ${isGone}`} />
  </div>`;
}

/** Asks for the list first: a message that is gone is nothing wrong, and the browser would log a 404 as an error. */
async function load(path, subQueue, sequenceNumber) {
  const where = { entity: path, sub_queue: subQueue };
  const { messages } = await get("/messages", { ...where, after: Number(sequenceNumber) - 1, limit: 1, body: "none" });
  if (messages[0]?.sequence_number !== Number(sequenceNumber)) throw new ApiError(404, "message_not_found", "The message is not here any more.");
  return get("/message", { ...where, sequence_number: sequenceNumber, body: "base64" });
}

function Why({ message }) {
  const { reason, description, source } = message.dead_letter;
  return html`<section class="panel why" aria-label="Why it is a dead letter"><div class="content stack">
    <div><h2>Why it is a dead letter</h2></div>
    <dl class="pairs"><div><dt>Reason</dt><dd class="bad">${reason ? visible(reason) : "none given"}</dd></div>
      ${description && html`<div><dt>Description</dt><dd>${visible(description)}</dd></div>`}
      <div><dt>Failed deliveries</dt><dd>${number(message.delivery_count)}</dd></div>
      ${source && html`<div><dt>Dead-lettered by</dt><dd><a href=${link("entity", [source])}>${visible(source)}</a></dd></div>`}</dl>
  </div></section>`;
}

function Delivery({ message }) {
  const { lock } = message;
  const rows = [
    ["sequence_number", message.sequence_number],
    message.enqueued_sequence_number !== message.sequence_number && ["enqueued_sequence_number", message.enqueued_sequence_number],
    ["enqueued", html`<${Moment} at=${message.enqueued_at} isLong=${true} /> <span class="hint">(<${Age} at=${message.enqueued_at} />)</span>`],
    message.scheduled_for && ["scheduled_for", html`<${Moment} at=${message.scheduled_for} isLong=${true} />`],
    ["expires", message.expires_at ? html`<${Moment} at=${message.expires_at} isLong=${true} />` : "never"],
    message.time_to_live_ms !== null && message.time_to_live_ms > 0 && ["time_to_live", duration(message.time_to_live_ms)],
    ["delivery_count", number(message.delivery_count)],
    ["size", bytes(message.size_bytes)],
    message.partition_key && ["partition_key", shown(message.partition_key)],
    ...Object.entries(message.header).map(([name, value]) => [name, shown(value)]),
    lock && ["locked_until", html`<${Moment} at=${lock.until} isLong=${true} />`],
    lock && ["lock_token", html`<span class="mono">${lock.token}</span>`],
    lock && ["lock holder", html`${visible(lock.holder.container_id ?? "unknown")} ${lock.holder.connection_id && html`<a href=${link("connections", [lock.holder.connection_id])}>connection</a>`}`],
  ].filter(Boolean);
  return html`<section class="panel"><header><h2>Delivery</h2></header><table class="plain"><tbody>
    ${rows.map(([name, value]) => html`<tr key=${name}><th scope="row">${name}</th><td>${value}</td></tr>`)}
  </tbody></table></section>`;
}

function Values({ title, values, types, none }) {
  const names = Object.keys(values);
  return html`<section class="panel"><header><h2>${title}</h2>${names.length > 0 && html`<div class="end"><${Copy} text=${JSON.stringify(values, null, 2)} /></div>`}</header>
    ${names.length
      ? html`<table class="plain"><thead class="unseen"><tr><th>Name</th><th>Value</th><th>AMQP type</th></tr></thead><tbody>
          ${names.map((name) => html`<tr key=${name}><th scope="row">${visible(name)}</th><td>${shown(values[name])}</td><td class="type number hint">${types?.[name] ?? ""}</td></tr>`)}
        </tbody></table>`
      : html`<p class="content hint">${none}</p>`}
  </section>`;
}

function Actions({ message, path, subQueue, isGone, reload }) {
  const base = { entity: path, sub_queue: subQueue, sequence_numbers: [message.sequence_number] };
  const isDead = subQueue !== "main";
  async function leave(action, said) {
    if (await attempt(action, said)) go("entity", [path], { sub_queue: isDead ? subQueue : "" });
  }
  async function deadLetter() {
    const given = await ask({
      title: "Dead-letter this message",
      confirm: "Dead-letter",
      fields: [{ name: "reason", label: "Reason", placeholder: "optional" }, { name: "description", label: "Description", placeholder: "optional" }],
    });
    if (!given) return;
    const why = Object.fromEntries(Object.entries(given).filter(([, value]) => value));
    await leave(() => post("/messages/dead-letter", { ...base, ...why }), "The message is dead-lettered.");
  }
  async function erase() {
    if (await ask({ title: "Delete this message?", text: "This cannot be undone.", confirm: "Delete the message" })) {
      await leave(() => post("/messages/delete", base), "The message is deleted.");
    }
  }
  async function stay(action, said) {
    if (await attempt(action, said)) reload();
  }
  const target = path.split(/\/subscriptions\//i)[0];
  return html`<div class="actions">
    <a class="button" href=${link("send", [], { entity: target, from: path, sub_queue: isDead ? subQueue : "", number: String(message.sequence_number) })}>Send a copy…</a>
    ${!isGone && html`
      ${isDead && html`<button class="primary" onClick=${() => leave(() => post("/resubmit", base), ({ count }) => `${plural(count, "message")} resubmitted to ${path}.`)}>Resubmit</button>`}
      ${message.lock && html`<button onClick=${() => stay(() => post("/locks/expire", base), "The lock has expired.")}>Expire lock</button>`}
      ${message.state !== "active" && html`<button onClick=${() => stay(() => post("/messages/release", base), "The message is released.")}>Release</button>`}
      ${!isDead && html`<button onClick=${deadLetter}>Dead-letter…</button>`}
      <button class="danger" onClick=${erase}>Delete…</button>`}
  </div>`;
}
