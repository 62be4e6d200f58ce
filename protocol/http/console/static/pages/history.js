// History: the transitions of messages as they happen.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.module.js";
import { get, put, stream } from "../api.js";
import { oneLine, shown } from "../format.js";
import { link, replaceQuery } from "../router.js";
import { Table } from "../table.js";
import { Empty, Failure, Icon, Moment, attempt } from "../widgets.js";
import { eventWord, facts, isBadEvent } from "./timeline.js";

const KEPT = 2000;
const PAGE = 1000;

export default function History({ route }) {
  const { entity = "", message_id: messageId = "" } = route.query;
  const [rows, setRows] = useState([]);
  const [isRecording, setRecording] = useState(null);
  const [error, setError] = useState(null);
  const [isPaused, setPaused] = useState(false);
  const waiting = useRef([]);
  const query = { entity, message_id: messageId };
  const key = JSON.stringify(query);

  useEffect(() => {
    let isCurrent = true;
    setRows([]);
    setError(null);
    newest(query).then((answer) => {
      if (!isCurrent) return;
      setRecording(answer.recording);
      setRows(answer.transitions.reverse());
    }, (caught) => isCurrent && setError(caught));
    return () => {
      isCurrent = false;
    };
  }, [key, isRecording]);

  useEffect(() => {
    if (isPaused || error) return undefined;
    const close = stream("/history/stream", query, { event: (one, name) => name !== "dropped" && waiting.current.push(one) });
    // Many transitions come at once; the page draws them a few times a second.
    const timer = setInterval(() => {
      if (!waiting.current.length) return;
      const added = waiting.current.reverse();
      waiting.current = [];
      setRows((before) => {
        const newest = before[0]?.number ?? 0;
        return [...added.filter((one) => one.number > newest), ...before].slice(0, KEPT);
      });
    }, 300);
    return () => {
      close();
      clearInterval(timer);
    };
  }, [key, isPaused, error]);

  if (error) return html`<div class="page"><${Failure} error=${error} /></div>`;
  const record = (value) => attempt(() => put("/history", { recording: value }), value ? "History is recorded." : "History is not recorded any more.").then(() => setRecording(value));
  return html`<div class="page">
    <div class="heading"><h1>History</h1><span class="hint">What happened to messages, the newest first.</span>
      <div class="actions"><button aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button>
        ${isRecording !== null && html`<button onClick=${() => record(!isRecording)}>${isRecording ? "Stop recording" : "Record"}</button>`}</div></div>
    <section class="panel fill" aria-label="Transitions"><div class="toolbar">
        <label class="search"><${Icon} name="search" /><span class="unseen">Message id</span><input type="search" placeholder="Message id" value=${messageId} onChange=${(event) => replaceQuery({ entity, message_id: event.target.value.trim() })} /></label>
        <label class="search"><${Icon} name="queue" /><span class="unseen">Entity</span><input type="search" placeholder="Entity" value=${entity} onChange=${(event) => replaceQuery({ entity: event.target.value.trim(), message_id: messageId })} /></label>
      </div>
      <${Table} label="Transitions" columns=${COLUMNS} rows=${rows} keyOf=${(one) => one.number} rowClass=${(one) => (isBadEvent(one.event) ? "bad-event" : "")}
        empty=${html`<${Empty} title="Nothing is recorded"><p>${isRecording === false ? "Press Record, and then use the broker." : "Send or receive a message, and it shows here."}</p><//>`} /></section>
  </div>`;
}

/** The API reads from the oldest on. All transitions have rising numbers, also those that the query leaves out. */
async function newest(query) {
  const { last } = await get("/history", { ...query, limit: 1 });
  const isAbout = query.message_id || query.entity;
  return get("/history", { ...query, after: isAbout ? "" : Math.max(0, last - PAGE), limit: PAGE });
}

const COLUMNS = [
  { id: "time", label: "Time", className: "moment", cell: (one) => html`<${Moment} at=${one.time} />` },
  { id: "event", label: "Event", cell: (one) => html`<span class=${isBadEvent(one.event) ? "bad" : ""}>${eventWord(one.event)}</span>` },
  { id: "entity", label: "Entity", className: "medium", cell: (one) => html`<a href=${link("entity", [one.entity], { sub_queue: one.sub_queue })}>${oneLine(one.entity)}</a>` },
  { id: "number", label: "Number", className: "number", cell: (one) => html`<a href=${link("message", [one.entity, one.sub_queue ?? "main", String(one.sequence_number)])}>${one.sequence_number ?? "–"}</a>` },
  { id: "id", label: "Message id", className: "long", cell: (one) => oneLine(shown(one.message_id)) },
  { id: "facts", label: "Facts", className: "long wide", cell: (one) => html`${facts(one)}${one.reason ? html` <span class="bad">${oneLine(one.reason)}</span>` : ""}` },
];
