// Send: one message or many, from scratch, from a template of this browser, or as a copy of an earlier message.

import { html, useEffect, useState } from "../vendor/htm-preact.module.js";
import { get, post } from "../api.js";
import { decoded, fromBase64 } from "../bodies.js";
import { plural } from "../format.js";
import { useLive } from "../live.js";
import { link } from "../router.js";
import { Empty, Icon, ask, notify } from "../widgets.js";

const TEMPLATES = "peeklock.templates";
const MANY_MAX = 5000;
const EMPTY = {
  body: "",
  body_format: "text",
  message_id: "",
  session_id: "",
  subject: "",
  content_type: "",
  correlation_id: "",
  to: "",
  reply_to: "",
  reply_to_session_id: "",
  partition_key: "",
  time_to_live: "",
  time_to_live_unit: "60",
  schedule: "",
  properties: [],
  count: "1",
};
const TEXTS = ["message_id", "session_id", "subject", "content_type", "correlation_id", "to", "reply_to", "reply_to_session_id", "partition_key"];

export default function Send({ route }) {
  const state = useLive();
  const [entity, setEntity] = useState(route.query.entity ?? "");
  const [form, setForm] = useState(EMPTY);
  const [mode, setMode] = useState("form");
  const [json, setJson] = useState("");
  const [error, setError] = useState(null);
  const [sent, setSent] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const targets = [...state.rows.values()].filter((row) => row.kind !== "subscription").map((row) => row.path).sort();
  const set = (name) => (event) => setForm((before) => ({ ...before, [name]: event.target.value }));

  useEffect(() => {
    if (route.query.number) copyEarlier(route.query, setForm);
  }, [route.query.number]);
  useEffect(() => {
    if (!entity && targets.length) setEntity(targets[0]);
  }, [targets.length]);

  function toggleJson() {
    setError(null);
    if (mode === "form") {
      try {
        setJson(JSON.stringify(messagesOf({ ...form, count: "1" }), null, 2));
      } catch (caught) {
        setError(caught);
        return;
      }
    }
    setMode(mode === "form" ? "json" : "form");
  }

  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    try {
      const messages = mode === "form" ? messagesOf(form) : [JSON.parse(json)].flat();
      const answer = await post("/messages", { entity, messages });
      setError(null);
      setSent({ ...answer, entity });
      notify(`${plural(answer.sent, "message")} sent to ${entity}.`);
    } catch (caught) {
      setSent(null);
      setError(caught instanceof SyntaxError ? { message: `The messages are not valid JSON: ${caught.message}.` } : caught);
    } finally {
      setBusy(false);
    }
  }

  if (state.hasData && !targets.length) {
    return html`<div class="page"><h1>Send</h1><${Empty} title="There is no queue and no topic"><p>Declare one in a config file, or create one with the administration client of your SDK.</p><//></div>`;
  }
  return html`<div class="page narrow">
    <div class="heading"><h1>Send</h1><div class="actions"><${Templates} form=${form} setForm=${setForm} /></div></div>
    <form class="stack" onSubmit=${submit}>
      <section class="panel" aria-label="Message"><div class="content stack">
        <div class="fields">
          <label class="field"><span>Queue or topic</span><input required list="targets" value=${entity} onInput=${(event) => setEntity(event.target.value)} /><datalist id="targets">${targets.map((path) => html`<option key=${path} value=${path}></option>`)}</datalist></label>
          ${mode === "form" && html`<label class="field"><span>How many</span><input type="number" min="1" max=${MANY_MAX} required value=${form.count} onInput=${set("count")} /></label>`}
        </div>
        ${mode === "json"
          ? html`<label class="field"><span>Messages as JSON</span><textarea rows="16" spellcheck=${false} value=${json} onInput=${(event) => setJson(event.target.value)}></textarea><span class="hint">One message, or a list of up to ${MANY_MAX}, in the fields of POST /messages.</span></label>`
          : html`<${Fields} form=${form} set=${set} setForm=${setForm} />`}
      </div></section>
      ${error && html`<div class="failure flush" role="alert"><${Icon} name="alert" /><p>${error.message}</p></div>`}
      <div class="buttons">
        <button class="primary" type="submit" disabled=${isBusy}><${Icon} name="send" /> Send</button>
        <button type="button" onClick=${toggleJson}>${mode === "form" ? "Edit as JSON" : "Back to the form"}</button>
        <button type="button" onClick=${() => { setForm(EMPTY); setSent(null); setError(null); }}>Clear</button>
      </div>
      ${sent && html`<p role="status" id="sent">${plural(sent.sent, "message")} sent to <a href=${link("entity", [sent.entity])}>${sent.entity}</a>.
        ${sent.sequence_numbers.length === 1 && html` It has the number <a href=${link("message", [sent.entity, "main", String(sent.sequence_numbers[0])])}>${sent.sequence_numbers[0]}</a>.`}
        ${sent.sequence_numbers.length < sent.sent && sent.sequence_numbers.length > 0 && html` Duplicate detection has dropped ${sent.sent - sent.sequence_numbers.length}.`}</p>`}
    </form>
  </div>`;
}

function Fields({ form, set, setForm }) {
  return html`
    <label class="field"><span>Body</span><textarea rows="8" spellcheck=${false} value=${form.body} onInput=${set("body")}></textarea></label>
    <div class="fields">
      <label class="field"><span>The body is</span><select value=${form.body_format} onChange=${set("body_format")}><option value="text">text</option><option value="json">JSON</option><option value="base64">base64</option></select></label>
      <label class="field"><span>Content type</span><input value=${form.content_type} onInput=${set("content_type")} placeholder=${form.body_format === "json" ? "application/json" : ""} list="content-types" /><datalist id="content-types"><option value="application/json"></option><option value="application/xml"></option><option value="text/plain"></option></datalist></label>
      <label class="field"><span>Message id</span><input value=${form.message_id} onInput=${set("message_id")} placeholder="made by the broker" /></label>
      <label class="field"><span>Subject</span><input value=${form.subject} onInput=${set("subject")} /></label>
      <label class="field"><span>Session id</span><input value=${form.session_id} onInput=${set("session_id")} /></label>
      <label class="field"><span>Correlation id</span><input value=${form.correlation_id} onInput=${set("correlation_id")} /></label>
    </div>
    <div class="fields pairwise">
      <label class="field"><span>Scheduled for</span><input type="datetime-local" step="1" value=${form.schedule} onInput=${set("schedule")} /><span class="hint">in your zone; at once if it is empty</span></label>
      <div class="field"><span id="ttl">Time to live</span><div class="pair"><input aria-labelledby="ttl" type="number" min="0.001" step="any" value=${form.time_to_live} onInput=${set("time_to_live")} placeholder="as the entity says" />
        <select aria-label="Unit of the time to live" value=${form.time_to_live_unit} onChange=${set("time_to_live_unit")}><option value="1">seconds</option><option value="60">minutes</option><option value="3600">hours</option><option value="86400">days</option></select></div></div>
    </div>
    <${ApplicationProperties} form=${form} setForm=${setForm} />
    <details><summary>More properties</summary><div class="fields inside">
      <label class="field"><span>To</span><input value=${form.to} onInput=${set("to")} /></label>
      <label class="field"><span>Reply to</span><input value=${form.reply_to} onInput=${set("reply_to")} /></label>
      <label class="field"><span>Reply to session id</span><input value=${form.reply_to_session_id} onInput=${set("reply_to_session_id")} /></label>
      <label class="field"><span>Partition key</span><input value=${form.partition_key} onInput=${set("partition_key")} /></label>
    </div></details>
    ${Number(form.count) > 1 && html`<p class="hint">{n} in the body, the ids and the properties becomes the number of the message, from 1 to ${form.count}.</p>`}`;
}

function ApplicationProperties({ form, setForm }) {
  const change = (place, changes) => setForm((before) => ({ ...before, properties: before.properties.map((one, at) => (at === place ? { ...one, ...changes } : one)) }));
  const add = () => setForm((before) => ({ ...before, properties: [...before.properties, { name: "", type: "string", value: "" }] }));
  const drop = (place) => setForm((before) => ({ ...before, properties: before.properties.filter((_, at) => at !== place) }));
  return html`<fieldset><legend>Application properties</legend><div class="property-rows">
    ${form.properties.map((one, place) => html`<div class="property-row" key=${place}>
      <input aria-label="Name of the property" placeholder="name" value=${one.name} onInput=${(event) => change(place, { name: event.target.value })} />
      <select aria-label="Type of the property" value=${one.type} onChange=${(event) => change(place, { type: event.target.value })}><option>string</option><option>number</option><option>boolean</option></select>
      <input aria-label="Value of the property" placeholder="value" value=${one.value} onInput=${(event) => change(place, { value: event.target.value })} />
      <button type="button" class="plain" aria-label=${`Remove the property ${one.name}`} onClick=${() => drop(place)}><${Icon} name="close" /></button>
    </div>`)}
    <div><button type="button" class="small" onClick=${add}>Add a property</button></div></div></fieldset>`;
}

// --- messages -----------------------------------------------------------------------------------------------------

/** Returns the messages of the form as the API takes them. Throws an error with a sentence. */
function messagesOf(form) {
  const count = Number(form.count);
  if (!Number.isInteger(count) || count < 1 || count > MANY_MAX) throw new Error(`Send between 1 and ${MANY_MAX} messages at once.`);
  return Array.from({ length: count }, (_, place) => messageOf(form, count > 1 ? String(place + 1) : null));
}

function messageOf(form, place) {
  const filled = (text) => (place === null ? text : text.replaceAll("{n}", place));
  const message = { body: bodyOf(form, filled), body_format: form.body_format };
  for (const name of TEXTS) if (form[name]) message[name] = filled(form[name]);
  if (form.time_to_live) message.time_to_live_s = Number(form.time_to_live) * Number(form.time_to_live_unit);
  if (form.schedule) message.scheduled_for = new Date(form.schedule).toISOString();
  const properties = form.properties.filter((one) => one.name);
  if (properties.length) message.application_properties = Object.fromEntries(properties.map((one) => [one.name, valueOf(one, filled)]));
  return message;
}

function bodyOf(form, filled) {
  if (form.body_format !== "json") return filled(form.body);
  try {
    return JSON.parse(filled(form.body || "null"));
  } catch (error) {
    throw new Error(`The body is not valid JSON: ${error.message}.`);
  }
}

function valueOf({ name, type, value }, filled) {
  const text = filled(value);
  if (type === "string") return text;
  if (type === "boolean") {
    if (!["true", "false"].includes(text.trim().toLowerCase())) throw new Error(`The property '${name}' must be true or false.`);
    return text.trim().toLowerCase() === "true";
  }
  if (text.trim() === "" || Number.isNaN(Number(text))) throw new Error(`The property '${name}' must be a number.`);
  return Number(text);
}

async function copyEarlier({ from, sub_queue: subQueue = "main", number }, setForm) {
  let message;
  try {
    message = await get("/message", { entity: from, sub_queue: subQueue, sequence_number: number, body: "base64" });
  } catch (error) {
    notify(error.message, "error");
    return;
  }
  const text = decoded(fromBase64(message.body));
  const texts = Object.fromEntries(TEXTS.map((name) => [name, message[name] === null ? "" : String(message[name])]));
  const properties = Object.entries(message.application_properties).map(([name, value]) => ({ name, type: typeof value === "number" ? "number" : typeof value === "boolean" ? "boolean" : "string", value: String(value) }));
  setForm({ ...EMPTY, ...texts, message_id: "", properties, body: text ?? message.body, body_format: text === null ? "base64" : "text" });
}

// --- templates ----------------------------------------------------------------------------------------------------

function readTemplates() {
  try {
    return JSON.parse(localStorage.getItem(TEMPLATES)) ?? {};
  } catch {
    return {};
  }
}

function Templates({ form, setForm }) {
  const [templates, setTemplates] = useState(readTemplates);
  const names = Object.keys(templates).sort();
  function keep(next) {
    localStorage.setItem(TEMPLATES, JSON.stringify(next));
    setTemplates(next);
  }
  async function save() {
    const given = await ask({ title: "Save as a template", text: "Templates are kept in this browser.", confirm: "Save", isDanger: false, fields: [{ name: "name", label: "Name" }] });
    if (given?.name) keep({ ...templates, [given.name]: form });
  }
  async function forget(event) {
    const name = event.target.value;
    event.target.value = "";
    if (!name) return;
    const { [name]: _, ...others } = templates;
    keep(others);
  }
  return html`${names.length > 0 && html`<label><span class="unseen">Use a template</span><select value="" onChange=${(event) => event.target.value && setForm({ ...EMPTY, ...templates[event.target.value] })}>
      <option value="">Use a template…</option>${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
    <label><span class="unseen">Delete a template</span><select value="" onChange=${forget}><option value="">Delete…</option>${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`}
    <button type="button" onClick=${save}>Save as template…</button>`;
}
