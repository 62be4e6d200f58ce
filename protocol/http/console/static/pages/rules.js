// The rules of a subscription, and a try-out: which of them match a message, and what an action makes of it.

import { html, useState } from "../vendor/htm-preact.module.js";
import { get, post } from "../api.js";
import { oneLine, plural, shown, visible } from "../format.js";
import { Failure, useLoaded } from "../widgets.js";

const EXAMPLE = `{
  "subject": "OrderPlaced",
  "application_properties": { "color": "red", "total": 120 },
  "body": { "order": 7 }
}`;

export default function Rules({ path }) {
  const [answer, error, reload] = useLoaded(() => get("/rules", { entity: path }), [path]);
  const [result, setResult] = useState(null);
  if (error) return html`<${Failure} error=${error} retry=${reload} />`;
  if (!answer) return null;
  const tried = new Map(result?.rules.map((one) => [one.name, one]));
  const draft = result?.rules.find((one) => one.is_draft);
  return html`<div class="columns">
    <section class="panel" aria-label="Rules"><header><h2>${plural(answer.rules.length, "rule")}</h2>${result && html`<span class="hint" role="status">The subscription would get ${result.copies ? plural(result.copies, "copy", "copies") : "nothing"}.</span>`}</header>
      ${answer.rules.length
        ? html`<ul class="rules">${answer.rules.map((rule) => html`<${Rule} key=${rule.name} rule=${rule} tried=${tried.get(rule.name)} message=${result?.message} />`)}
            ${draft && html`<${Rule} rule=${{ ...draft, name: "Your draft" }} tried=${draft} message=${result.message} />`}</ul>`
        : html`<p class="content hint">Without rules the subscription gets no messages.</p>`}
    </section>
    <${TryOut} path=${path} setResult=${setResult} />
  </div>`;
}

function filterText(definition) {
  if ("sql_filter" in definition) return definition.sql_filter;
  if ("true_filter" in definition) return "every message";
  if ("false_filter" in definition) return "no message";
  const { properties, ...fields } = definition.correlation_filter ?? {};
  const system = Object.entries(fields).map(([name, value]) => `sys.${name} = ${shown(value)}`);
  const own = Object.entries(properties ?? {}).map(([name, value]) => `${name} = ${shown(value)}`);
  return [...system, ...own].join(" and ") || "every message";
}

function Rule({ rule, tried, message }) {
  const { definition } = rule;
  return html`<li>
    <div class="rule-head"><b>${oneLine(rule.name)}</b>
      ${"correlation_filter" in definition && html`<span class="tag">correlation</span>`}
      ${tried && html`<span class=${`tag ${tried.error ? "bad" : tried.matches ? "accent" : ""}`}>${tried.error ? "fails" : tried.matches ? "matches" : "does not match"}</span>`}</div>
    <code>${visible(filterText(definition))}</code>
    ${definition.action && html`<p><span class="hint">action</span> <code>${visible(definition.action)}</code></p>`}
    ${tried?.error && html`<p class="bad">${visible(tried.error)}</p>`}
    ${tried?.result && html`<${Changes} before=${message} after=${tried.result} />`}
  </li>`;
}

/** What an action has changed. */
function Changes({ before, after }) {
  const flat = (one) => ({ ...Object.fromEntries(["message_id", "subject", "correlation_id", "to", "reply_to", "session_id", "reply_to_session_id", "content_type"].map((name) => [`sys.${name}`, one[name]])), ...one.application_properties });
  const [old, now] = [flat(before), flat(after)];
  const names = [...new Set([...Object.keys(old), ...Object.keys(now)])].filter((name) => JSON.stringify(old[name]) !== JSON.stringify(now[name]));
  return html`<table class="plain changes"><thead><tr><th scope="col">Property</th><th scope="col">Before</th><th scope="col">After</th></tr></thead><tbody>
    ${names.map((name) => html`<tr key=${name}><th scope="row">${visible(name)}</th><td>${shown(old[name]) || html`<span class="none">–</span>`}</td><td>${shown(now[name]) || html`<span class="none">removed</span>`}</td></tr>`)}
  </tbody></table>`;
}

function TryOut({ path, setResult }) {
  const [source, setSource] = useState("new");
  const [text, setText] = useState(EXAMPLE);
  const [entity, setEntity] = useState(path);
  const [sequenceNumber, setNumber] = useState("");
  const [filter, setFilter] = useState("");
  const [action, setAction] = useState("");
  const [error, setError] = useState(null);
  async function run(event) {
    event.preventDefault();
    const body = { entity: path };
    try {
      if (source === "new") body.message = JSON.parse(text);
      else body.stored = { entity, sequence_number: Number(sequenceNumber) };
      if (filter.trim() || action.trim()) body.draft = { ...(filter.trim() ? { sql_filter: filter } : {}), ...(action.trim() ? { action } : {}) };
      setResult(await post("/rules/try", body));
      setError(null);
    } catch (caught) {
      setResult(null);
      setError(caught instanceof SyntaxError ? { message: `The message is not valid JSON: ${caught.message}.` } : caught);
    }
  }
  return html`<section class="panel" aria-label="Try-out"><header><h2>Try a message</h2><span class="hint">Nothing is sent.</span></header>
    <form class="content stack" onSubmit=${run}>
      <div class="segments" role="group" aria-label="Which message">
        <button type="button" aria-pressed=${source === "new"} onClick=${() => setSource("new")}>A new one</button>
        <button type="button" aria-pressed=${source === "stored"} onClick=${() => setSource("stored")}>One in the broker</button>
      </div>
      ${source === "new"
        ? html`<label class="field"><span>Message as JSON</span><textarea rows="8" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>`
        : html`<div class="fields"><label class="field"><span>Entity</span><input value=${entity} onInput=${(event) => setEntity(event.target.value)} /></label>
            <label class="field"><span>Sequence number</span><input inputmode="numeric" required value=${sequenceNumber} onInput=${(event) => setNumber(event.target.value)} /></label></div>`}
      <div class="fields"><label class="field"><span>A rule to try beside them: filter</span><input class="mono" placeholder="total > 100" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
        <label class="field"><span>and action</span><input class="mono" placeholder="SET priority = 'high'" value=${action} onInput=${(event) => setAction(event.target.value)} /></label></div>
      ${error && html`<p class="bad" role="alert">${error.message}</p>`}
      <div><button class="primary" type="submit">Try</button></div>
    </form>
  </section>`;
}
