// Faults: rules that make the broker fail on purpose, and how often each has acted.

import { html, useState } from "../vendor/htm-preact.module.js";
import { get, post, remove } from "../api.js";
import { number, oneLine, plural, shown, visible } from "../format.js";
import { link } from "../router.js";
import { Empty, Failure, attempt, useLoaded, useTick } from "../widgets.js";

const REFRESH_MS = 1500;
const ANY = ["refuse", "server_busy", "delay", "no_answer", "drop_connection"];
const LOCKING = [...ANY, "detach", "lose_lock", "expire_token", "close_session"];
/** The kinds of faults that each operation can have. A test compares them with those of the broker. */
export const OPERATIONS = {
  connect: ["delay", "no_answer", "drop_connection"],
  open: ANY,
  attach: [...ANY, "expire_token"],
  send: [...ANY, "detach", "expire_token"],
  deliver: ["delay", "no_answer", "detach", "drop_connection", "lose_lock", "deliver_twice", "expire_token", "close_session"],
  settle: LOCKING,
  renew: LOCKING,
  management: LOCKING,
  put_token: [...ANY, "detach", "expire_token"],
  administration: [...ANY, "expire_token"],
};
const WITHOUT_ENTITY = ["connect", "open", "put_token"];
const WITHOUT_CLIENT = ["connect", "administration"];
const WITH_FILTER = ["send", "deliver", "settle"];
/** Each kind of action, and the fields that it takes. */
const KINDS = {
  refuse: ["condition", "description"],
  server_busy: ["description"],
  delay: ["seconds"],
  no_answer: ["when"],
  detach: ["condition", "description"],
  drop_connection: ["when"],
  lose_lock: [],
  deliver_twice: [],
  expire_token: [],
  close_session: [],
};
const CONDITIONS = ["com.microsoft:server-busy", "com.microsoft:timeout", "com.microsoft:message-lock-lost", "com.microsoft:session-lock-lost", "amqp:not-found", "amqp:unauthorized-access", "amqp:resource-limit-exceeded", "amqp:internal-error"];
const OCCURRENCES = { always: "every time", nth: "the nth time", every: "every nth time", first: "the first n times", probability: "with a probability" };

export default function Faults() {
  const round = useTick(REFRESH_MS);
  const [answer, error, reload] = useLoaded(() => get("/faults"), [round]);
  if (error && !answer) return html`<div class="page"><${Failure} error=${error} retry=${reload} /></div>`;
  if (!answer) return null;
  const drop = (name) => attempt(() => remove(`/faults/${encodeURIComponent(name)}`), `The fault ${name} is removed.`).then(reload);
  const dropAll = () => attempt(() => remove("/faults"), ({ count }) => `${plural(count, "fault")} removed.`).then(reload);
  return html`<div class="page">
    <div class="heading"><h1>Faults</h1><span class="hint">Rules that make this broker fail on purpose. They end with the broker.</span>
      ${answer.faults.length > 0 && html`<div class="actions"><button onClick=${dropAll}>Remove all</button></div>`}</div>
    <section class="panel" aria-label="Fault rules">${answer.faults.length
      ? html`<div class="table natural" tabindex="0" role="region" aria-label="Table of fault rules"><table><thead><tr><th scope="col">Name</th><th scope="col">When</th><th scope="col">What</th><th scope="col" class="number">Fitting</th><th scope="col" class="number">Hits</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
          <tbody>${answer.faults.map((one) => html`<tr key=${one.name} data-row=${one.name}><td>${oneLine(one.name)}</td><td class="wrap">${when(one)}</td><td class="wrap">${what(one.action)}</td><td class="number">${number(one.matched ?? 0)}</td><td class="number"><b>${number(one.hits ?? 0)}</b></td>
            <td class="number"><button class="small" onClick=${() => drop(one.name)}>Remove</button></td></tr>`)}</tbody></table></div>`
      : html`<${Empty} title="No faults"><p>Add a rule below, and see what your application does when the broker is busy, slow or gone.</p><//>`}</section>
    <${NewFault} done=${reload} />
  </div>`;
}

function when(one) {
  const parts = [one.operation];
  if (one.management_operation) parts.push(one.management_operation);
  const occurrence = Object.entries(one.occurrence ?? {}).filter(([, value]) => value !== null);
  const client = Object.values(one.client ?? {}).filter(Boolean);
  return html`${parts.join(" ")}${one.entity && html` on <a href=${link("entity", [one.entity])}>${oneLine(one.entity)}</a>${one.sub_queue ? ` (${one.sub_queue})` : ""}`}
    ${client.length > 0 && ` by ${oneLine(client.join(", "))}`}${one.filter && html` if <code>${visible(one.filter)}</code>`}${occurrence.length > 0 && html` <span class="hint">${occurrence.map(([name, value]) => `${name} ${value}`).join(", ")}</span>`}`;
}

function what(action) {
  const { kind, ...fields } = action;
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  return html`<b>${kind.replaceAll("_", " ")}</b> ${given.map(([, value]) => shown(value)).join(", ")}`;
}

function NewFault({ done }) {
  const [form, setForm] = useState({ name: "", operation: "send", entity: "", management_operation: "", container_id: "", filter: "", occurrence: "always", n: "1", seed: "1", kind: "server_busy", condition: CONDITIONS[0], description: "", seconds: "1", when: "before" });
  const [error, setError] = useState(null);
  const set = (name) => (event) => setForm((before) => ({ ...before, [name]: event.target.value }));
  async function submit(event) {
    event.preventDefault();
    try {
      const made = await post("/faults", faultOf(form));
      setError(null);
      await attempt(async () => made, `The fault ${made.name} is active.`);
      done();
    } catch (caught) {
      setError(caught);
    }
  }
  const kind = kindOf(form);
  const takes = KINDS[kind];
  return html`<section class="panel" aria-label="New fault"><header><h2>Add a fault</h2></header><form class="content stack" onSubmit=${submit}>
    <div class="fields">
      <label class="field"><span>When a client does</span><select value=${form.operation} onChange=${set("operation")}>${Object.keys(OPERATIONS).map((one) => html`<option key=${one} value=${one}>${one.replaceAll("_", " ")}</option>`)}</select></label>
      ${form.operation === "management" && html`<label class="field"><span>Management operation</span><input value=${form.management_operation} onInput=${set("management_operation")} placeholder="com.microsoft:peek-message" /></label>`}
      ${!WITHOUT_ENTITY.includes(form.operation) && html`<label class="field"><span>On the entity</span><input value=${form.entity} onInput=${set("entity")} placeholder="any" /></label>`}
      ${!WITHOUT_CLIENT.includes(form.operation) && html`<label class="field"><span>Of the client with container id</span><input value=${form.container_id} onInput=${set("container_id")} placeholder="any; * stands for any text" /></label>`}
      ${WITH_FILTER.includes(form.operation) && html`<label class="field"><span>If the message fits (SQL)</span><input class="mono" value=${form.filter} onInput=${set("filter")} placeholder="any" /></label>`}
      <label class="field"><span>How often</span><select value=${form.occurrence} onChange=${set("occurrence")}>${Object.entries(OCCURRENCES).map(([id, label]) => html`<option key=${id} value=${id}>${label}</option>`)}</select></label>
      ${form.occurrence !== "always" && html`<label class="field"><span>${form.occurrence === "probability" ? "Probability, 0 to 1" : "n"}</span><input type="number" step="any" required value=${form.n} onInput=${set("n")} /></label>`}
      ${form.occurrence === "probability" && html`<label class="field"><span>Seed</span><input type="number" required value=${form.seed} onInput=${set("seed")} /></label>`}
    </div>
    <div class="fields">
      <label class="field"><span>The broker will</span><select value=${kind} onChange=${set("kind")}>${OPERATIONS[form.operation].map((one) => html`<option key=${one} value=${one}>${one.replaceAll("_", " ")}</option>`)}</select></label>
      ${takes.includes("condition") && html`<label class="field"><span>Condition</span><input list="conditions" value=${form.condition} onInput=${set("condition")} /><datalist id="conditions">${CONDITIONS.map((one) => html`<option key=${one} value=${one}></option>`)}</datalist></label>`}
      ${takes.includes("description") && html`<label class="field"><span>Description</span><input value=${form.description} onInput=${set("description")} /></label>`}
      ${takes.includes("seconds") && html`<label class="field"><span>Seconds</span><input type="number" min="0" step="any" required value=${form.seconds} onInput=${set("seconds")} /></label>`}
      ${takes.includes("when") && html`<label class="field"><span>When</span><select value=${form.when} onChange=${set("when")}><option value="before">before the effect</option><option value="after">after it is stored</option></select></label>`}
      <label class="field"><span>Name</span><input value=${form.name} onInput=${set("name")} placeholder="made by the broker" /></label>
    </div>
    ${error && html`<p class="bad" role="alert">${error.message}</p>`}
    <div><button class="primary" type="submit">Add the fault</button></div>
  </form></section>`;
}

/** The chosen kind, or the first that the operation can have. */
const kindOf = ({ operation, kind }) => (OPERATIONS[operation].includes(kind) ? kind : OPERATIONS[operation][0]);

function faultOf(form) {
  const kind = kindOf(form);
  const fault = { operation: form.operation, action: { kind } };
  if (form.name) fault.name = form.name;
  if (form.entity && !WITHOUT_ENTITY.includes(form.operation)) fault.entity = form.entity;
  if (form.filter && WITH_FILTER.includes(form.operation)) fault.filter = form.filter;
  if (form.operation === "management" && form.management_operation) fault.management_operation = form.management_operation;
  if (form.container_id && !WITHOUT_CLIENT.includes(form.operation)) fault.client = { container_id: form.container_id };
  if (form.occurrence === "probability") fault.occurrence = { probability: Number(form.n), seed: Number(form.seed) };
  else if (form.occurrence !== "always") fault.occurrence = { [form.occurrence]: Number(form.n) };
  for (const name of KINDS[kind]) if (form[name]) fault.action[name] = name === "seconds" ? Number(form[name]) : form[name];
  return fault;
}
