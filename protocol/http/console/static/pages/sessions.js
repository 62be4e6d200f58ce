// Sessions: who holds them, their states, and what waits in them.

import { html, useEffect } from "../vendor/htm-preact.module.js";
import { get, post } from "../api.js";
import { bytes, number, oneLine, plural } from "../format.js";
import { useLive, useRow } from "../live.js";
import { link, replaceQuery } from "../router.js";
import { Table } from "../table.js";
import { Empty, Failure, Moment, attempt, useLoaded, useTick } from "../widgets.js";

const REFRESH_MS = 2000;

export default function Sessions({ route }) {
  const state = useLive();
  const entities = [...state.rows.values()].filter((row) => row.held_sessions !== null).map((row) => row.path).sort();
  const chosen = entities.includes(route.query.entity) ? route.query.entity : entities[0];
  useEffect(() => {
    if (chosen && chosen !== route.query.entity) replaceQuery({ entity: chosen });
  }, [chosen]);
  return html`<div class="page">
    <div class="heading"><h1>Sessions</h1>
      ${entities.length > 0 && html`<label class="inline"><span class="unseen">Entity</span><select value=${chosen} onChange=${(event) => replaceQuery({ entity: event.target.value })}>
        ${entities.map((path) => html`<option key=${path} value=${path}>${path}</option>`)}</select></label>`}
    </div>
    ${chosen
      ? html`<section class="panel fill" aria-label="Sessions"><${SessionTable} key=${chosen} entity=${chosen} /></section>`
      : state.hasData && html`<${Empty} title="No entity requires sessions"><p>Set <code>requires_session</code> on a queue or subscription. Its messages are then delivered in order, session by session.</p><//>`}
  </div>`;
}

export function SessionTable({ entity }) {
  const row = useRow(entity);
  // Counts do not tell that a state was set or a lock renewed.
  const round = useTick(REFRESH_MS);
  const [answer, error, reload] = useLoaded(() => loadAll(entity), [entity, round, JSON.stringify(row && [row.counts, row.held_sessions])]);
  const expire = (session) => attempt(() => post("/locks/expire", { entity, session: session.session_id }), `The lock of session ${session.session_id} has expired.`).then(reload);
  const columns = [
    { id: "id", label: "Session", className: "long", cell: (one) => html`<a href=${link("entity", [entity], { session: one.session_id })}>${oneLine(one.session_id) || "(empty)"}</a>` },
    { id: "messages", label: "Messages", className: "number", cell: (one) => number(one.messages) },
    { id: "locked", label: "Locked", className: "number", cell: (one) => number(one.locked) },
    { id: "holder", label: "Holder", className: "medium", cell: (one) => (one.lock ? html`<a href=${link("connections", [one.lock.holder.connection_id])}>${oneLine(one.lock.holder.container_id ?? "unknown")}</a>` : html`<span class="none">nobody</span>`) },
    { id: "until", label: "Locked until", className: "wide", cell: (one) => html`<${Moment} at=${one.lock?.until} />` },
    { id: "state", label: "State", className: "long wide", cell: (one) => (one.state === null ? html`<span class="none">–</span>` : html`<span title=${one.state.slice(0, 2000)}>${oneLine(one.state.slice(0, 200))} <span class="hint">${bytes(one.state_size_bytes)}${one.state_format === "base64" ? ", base64" : ""}</span></span>`) },
    { id: "updated", label: "State set", className: "wide", cell: (one) => html`<${Moment} at=${one.state_updated_at} />` },
    { id: "actions", label: html`<span class="unseen">Actions</span>`, cell: (one) => one.lock && html`<button class="small" onClick=${() => expire(one)}>Expire lock</button>` },
  ];
  if (error) return html`<${Failure} error=${error} retry=${reload} />`;
  if (!answer) return html`<p class="content hint">Loading…</p>`;
  return html`<div class="toolbar"><span class="hint">${plural(answer.sessions.length, "session")}${answer.isCut ? ", more follow" : ""}, ${plural(answer.waiting_receivers, "receiver")} waiting for the next one</span></div>
    <${Table} label="Sessions" columns=${columns} rows=${answer.sessions} keyOf=${(one) => one.session_id}
      empty=${html`<${Empty} title="No sessions"><p>A session begins with the first message that has its id.</p><//>`} />`;
}

async function loadAll(entity) {
  const answer = await get("/sessions", { entity, limit: 1000 });
  return { ...answer, isCut: answer.next !== null };
}
