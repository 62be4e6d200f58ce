// The messages of one queue or sub-queue: states, filters, a table that loads as it is scrolled, and actions on many.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "../vendor/htm-preact.module.js";
import { get, post } from "../api.js";
import { number, oneLine, plural, shown } from "../format.js";
import { go, link, replaceQuery } from "../router.js";
import { Table } from "../table.js";
import { Empty, Failure, Icon, Moment, ask, attempt } from "../widgets.js";

const PAGE = 200;
const RELOAD_MS = 400;
/** Beyond so many rows a change of the queue does not load them again by itself. */
const RELOADED_MAX = 2 * PAGE;

export default function Messages({ path, kind, route, row }) {
  const { sub_queue: subQueue = "main", state = "", filter = "", text = "", session = "" } = route.query;
  const set = (changes) => replaceQuery({ tab: route.query.tab, sub_queue: subQueue === "main" ? "" : subQueue, state, filter, text, session, ...changes });
  const selectionOf = { entity: path, sub_queue: subQueue, state, filter, text, session };
  const key = JSON.stringify(selectionOf);
  const list = useMessages(selectionOf, key, row);
  const [chosen, setChosen] = useState(new Set());
  useEffect(() => setChosen(new Set()), [key]);

  const loaded = new Set(list.rows.map((one) => one.sequence_number));
  const numbers = [...chosen].filter((one) => loaded.has(one));
  const selection = {
    has: (one) => chosen.has(one.sequence_number),
    toggle: (one) => {
      const next = new Set(chosen);
      if (!next.delete(one.sequence_number)) next.add(one.sequence_number);
      setChosen(next);
    },
    all: () => setChosen(numbers.length === loaded.size ? new Set() : loaded),
    isAll: loaded.size > 0 && numbers.length === loaded.size,
  };
  const open = useCallback((one) => go("message", [path, subQueue, String(one.sequence_number)]), [path, subQueue]);
  const isFiltered = Boolean(state || filter || text || session);
  return html`<section class="panel fill" aria-label="Messages">
    <div class="toolbar"><${States} counts=${row?.counts} kind=${kind} subQueue=${subQueue} state=${state} set=${set} /></div>
    <div class="toolbar"><${Filter} filter=${filter} text=${text} session=${session} set=${set} error=${list.error} />
      <span class="hint end">${list.isLoaded ? said(list, row, subQueue, isFiltered) : "Loading…"}</span>
      ${list.isStale && html`<button class="small" onClick=${list.reload}>Load again</button>`}
    </div>
    ${numbers.length > 0
      ? html`<${Actions} numbers=${numbers} path=${path} subQueue=${subQueue} done=${() => { setChosen(new Set()); list.reload(); }} />`
      : html`<${AllActions} path=${path} subQueue=${subQueue} selected=${{ state, filter, session }} isText=${Boolean(text)} isFiltered=${isFiltered} count=${list.rows.length} done=${list.reload} />`}
    ${list.error && list.error.field !== "filter" && html`<${Failure} error=${list.error} retry=${list.reload} />`}
    <${Table} label="Messages" columns=${subQueue === "main" ? COLUMNS : DEAD_COLUMNS} rows=${list.rows} keyOf=${(one) => one.sequence_number} total=${list.rows.length}
      selection=${selection} open=${open} onEnd=${list.more}
      empty=${list.isLoaded && !list.error ? html`<${Nothing} path=${path} kind=${kind} subQueue=${subQueue} isFiltered=${isFiltered} />` : null} />
  </section>`;
}

function said(list, row, subQueue, isFiltered) {
  if (list.next !== null) return `${number(list.rows.length)} loaded, more follow`;
  const counts = row?.counts;
  const all = counts && (subQueue === "main" ? counts.active + counts.locked + counts.deferred + counts.scheduled : counts[`${subQueue}ed`]);
  return isFiltered && all !== undefined ? `${number(list.rows.length)} of ${number(all)}` : plural(list.rows.length, "message");
}

/** Loads pages of messages, more when the table is scrolled, and again when the queue changes. */
function useMessages(selected, key, row) {
  const [state, setState] = useState({ rows: [], next: 0, error: null, isLoaded: false });
  const [isStale, setStale] = useState(false);
  const current = useRef({ key: null, isLoading: false, counts: null, timer: null });

  async function load(after, before, limit) {
    current.current.isLoading = true;
    try {
      const page = await get("/messages", { ...selected, sub_queue: selected.state === "dead_lettered" ? "" : selected.sub_queue, after, limit, body: "none" });
      if (current.current.key !== key) return;
      setState({ rows: [...before, ...page.messages], next: page.next, error: null, isLoaded: true });
    } catch (error) {
      if (current.current.key === key) setState({ rows: before, next: null, error, isLoaded: true });
    } finally {
      if (current.current.key === key) current.current.isLoading = false;
    }
  }

  const count = state.rows.length;
  const reload = () => {
    setStale(false);
    load(0, [], Math.min(1000, Math.max(PAGE, count)));
  };
  useEffect(() => {
    current.current = { key, isLoading: false, counts: JSON.stringify(row), timer: null };
    setStale(false);
    load(0, [], PAGE);
    return () => clearTimeout(current.current.timer);
  }, [key]);

  // Load again soon after the queue has changed, but not with every change of a busy queue.
  useEffect(() => {
    const counts = JSON.stringify(row && [row.counts, row.outgoing_per_s, row.size_bytes, row.oldest_enqueued]);
    if (current.current.counts === counts || !state.isLoaded) {
      current.current.counts = counts;
      return;
    }
    current.current.counts = counts;
    if (count > RELOADED_MAX) {
      setStale(true);
      return;
    }
    clearTimeout(current.current.timer);
    current.current.timer = setTimeout(() => !current.current.isLoading && load(0, [], Math.max(PAGE, count)), RELOAD_MS);
  }, [row]);

  const more = useCallback(() => {
    if (!current.current.isLoading && state.next !== null && state.isLoaded) load(state.next, state.rows, PAGE);
  }, [state, key]);
  return { ...state, isStale, reload, more };
}

// --- choosing ---------------------------------------------------------------------------------------------------

function States({ counts, kind, subQueue, state, set }) {
  const all = counts ? counts.active + counts.locked + counts.deferred + counts.scheduled : undefined;
  const choices = kind === "topic"
    ? [["", "main", "Scheduled", counts?.scheduled]]
    : [
        ["", "main", "All", all],
        ["active", "main", "Active", counts?.active],
        ["locked", "main", "Locked", counts?.locked],
        ["deferred", "main", "Deferred", counts?.deferred],
        ["scheduled", "main", "Scheduled", counts?.scheduled],
        ["", "dead_letter", "Dead letters", counts?.dead_lettered],
        ["", "transfer_dead_letter", "Transfer dead letters", counts?.transfer_dead_lettered],
      ];
  return html`<div class="chips" role="group" aria-label="Which messages">
    ${choices.filter(([, queue, , count]) => queue !== "transfer_dead_letter" || count || subQueue === queue).map(([value, queue, label, count]) => html`<button key=${queue + value}
      aria-pressed=${subQueue === queue && state === value} onClick=${() => set({ sub_queue: queue === "main" ? "" : queue, state: value })}>
      ${label} <span class=${`count ${queue !== "main" && count ? "bad" : ""}`}>${count === undefined ? "" : number(count)}</span></button>`)}
  </div>`;
}

function Filter({ filter, text, session, set, error }) {
  const [mode, setMode] = useState(filter ? "filter" : session ? "session" : "text");
  const values = { filter, text, session };
  const [draft, setDraft] = useState(values[mode]);
  useLayoutEffect(() => setDraft(values[mode]), [filter, text, session]);
  function choose(event) {
    setMode(event.target.value);
    setDraft(values[event.target.value]);
  }
  const apply = (value) => set({ filter: "", text: "", session: "", [mode]: value.trim() });
  function submit(event) {
    event.preventDefault();
    apply(draft);
  }
  const hints = { text: "Text in the body, an id or a property", filter: "color = 'red' AND sys.DeliveryCount > 1", session: "Session id" };
  const isWrong = error?.field === "filter";
  return html`<form class="filter" onSubmit=${submit} role="search">
    <select aria-label="Filter by" value=${mode} onChange=${choose}>
      <option value="text">Text</option><option value="filter">SQL</option><option value="session">Session</option>
    </select>
    <label class="search"><${Icon} name="search" /><span class="unseen">Filter messages</span>
      <input type="search" class=${mode === "filter" ? "mono" : ""} value=${draft} placeholder=${hints[mode]} aria-invalid=${isWrong} aria-describedby=${isWrong ? "filter-error" : undefined}
        onInput=${(event) => setDraft(event.target.value)} onSearch=${(event) => event.target.value === "" && apply("")} />
    </label>
    <button type="submit">Filter</button>
    ${isWrong && html`<p class="bad" id="filter-error" role="alert">${error.message}</p>`}
  </form>`;
}

function Nothing({ path, kind, subQueue, isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No message matches"><p>Choose All, or change the filter.</p><//>`;
  if (subQueue !== "main") return html`<${Empty} title="No dead letters"><p>Messages come here when a receiver dead-letters them, when they were delivered too often, or when they expire.</p><//>`;
  if (kind === "topic") return html`<${Empty} title="No scheduled messages"><p>A topic keeps only messages that are scheduled. Others go to its subscriptions at once.</p><//>`;
  const target = kind === "subscription" ? path.split(/\/subscriptions\//i)[0] : path;
  return html`<${Empty} title="No messages"><p><a href=${link("send", [], { entity: target })}>Send one from here</a>, or with your application: <a href=${link("connect")}>Connect</a> has the connection string.</p><//>`;
}

// --- columns ----------------------------------------------------------------------------------------------------

const text = (value) => html`<span title=${value ?? ""}>${value === null || value === undefined ? html`<span class="none">–</span>` : oneLine(shown(value))}</span>`;
const SEQUENCE = {
  id: "number",
  label: "Number",
  title: "Sequence number",
  className: "number sequence",
  cell: (one) => html`<${MessageLink} one=${one} />`,
};
const ID = { id: "id", label: "Message id", className: "long", cell: (one) => text(one.message_id) };
const SUBJECT = { id: "subject", label: "Subject", className: "long", cell: (one) => text(one.subject) };
const SESSION = { id: "session", label: "Session", className: "wide medium", cell: (one) => text(one.session_id) };
const COUNT = { id: "count", label: "Deliveries", title: "Failed deliveries", className: "number", cell: (one) => number(one.delivery_count) };
const ENQUEUED = { id: "enqueued", label: "Enqueued", className: "moment", cell: (one) => html`<${Moment} at=${one.scheduled_for && one.state === "scheduled" ? one.scheduled_for : one.enqueued_at} />` };
const EXPIRES = { id: "expires", label: "Expires", className: "moment wide", cell: (one) => html`<${Moment} at=${one.expires_at} />` };
const STATE = { id: "state", label: "State", cell: (one) => html`<span class=${`tag ${one.state === "locked" ? "accent" : one.state === "active" ? "" : "warn"}`}>${one.state}</span>` };
const HOLDER = {
  id: "holder",
  label: "Lock holder",
  className: "wide medium",
  cell: (one) => (one.lock ? html`<span title=${`until ${one.lock.until}`}>${oneLine(one.lock.holder.container_id ?? "unknown")} <span class="hint">until <${Moment} at=${one.lock.until} /></span></span>` : html`<span class="none">–</span>`),
};
const REASON = {
  id: "reason",
  label: "Reason",
  className: "long",
  cell: (one) => html`<span class="bad" title=${one.dead_letter?.description ?? ""}>${one.dead_letter?.reason ? oneLine(one.dead_letter.reason) : "none given"}</span>`,
};
const COLUMNS = [SEQUENCE, ID, SUBJECT, SESSION, STATE, COUNT, ENQUEUED, EXPIRES, HOLDER];
const DEAD_COLUMNS = [SEQUENCE, ID, SUBJECT, REASON, SESSION, COUNT, ENQUEUED, HOLDER];

function MessageLink({ one }) {
  // The entity is that of the page, which the address has.
  const [, path] = /#\/(?:~[^/]*\/)?entity\/([^?/]*)/.exec(location.hash) ?? [];
  return html`<a href=${link("message", [decodeURIComponent(path ?? ""), one.sub_queue, String(one.sequence_number)])}>${one.sequence_number}</a>`;
}

// --- actions ----------------------------------------------------------------------------------------------------

function Actions({ numbers, path, subQueue, done }) {
  const base = { entity: path, sub_queue: subQueue, sequence_numbers: numbers };
  const many = plural(numbers.length, "message");
  async function run(action, said) {
    if (await attempt(action, said)) done();
  }
  async function resubmit() {
    await run(() => post("/resubmit", { ...base }), ({ count }) => `${plural(count, "message")} resubmitted.`);
  }
  async function move() {
    const given = await ask({ title: `Resubmit ${many} to another entity`, confirm: "Resubmit", isDanger: false, fields: [{ name: "to", label: "Queue or topic" }] });
    if (given?.to) await run(() => post("/resubmit", { ...base, to: given.to }), ({ count }) => `${plural(count, "message")} resubmitted to ${given.to}.`);
  }
  async function deadLetter() {
    const given = await ask({
      title: `Dead-letter ${many}`,
      confirm: "Dead-letter",
      fields: [{ name: "reason", label: "Reason", placeholder: "optional" }, { name: "description", label: "Description", placeholder: "optional" }],
    });
    if (given) {
      const why = Object.fromEntries(Object.entries(given).filter(([, value]) => value));
      await run(() => post("/messages/dead-letter", { ...base, ...why }), ({ count }) => `${plural(count, "message")} dead-lettered.`);
    }
  }
  async function erase() {
    if (await ask({ title: `Delete ${many}?`, text: "This cannot be undone.", confirm: `Delete ${many}` })) {
      await run(() => post("/messages/delete", base), ({ count }) => `${plural(count, "message")} deleted.`);
    }
  }
  const isDead = subQueue !== "main";
  return html`<div class="toolbar selection" role="group" aria-label="Actions on the selected messages">
    <b>${plural(numbers.length, "message")} selected</b>
    ${isDead && html`<button class="small" onClick=${resubmit}>Resubmit</button><button class="small" onClick=${move}>Resubmit to…</button>`}
    ${!isDead && html`<button class="small" onClick=${deadLetter}>Dead-letter…</button>`}
    <button class="small" title="End locks, return deferred messages, activate scheduled ones" onClick=${() => run(() => post("/messages/release", base), ({ count }) => `${plural(count, "message")} released.`)}>Release</button>
    <button class="small danger" onClick=${erase}>Delete…</button>
  </div>`;
}

/** Actions on all messages of a dead-letter queue, or all that a filter finds. */
function AllActions({ path, subQueue, selected, isText, isFiltered, count, done }) {
  if (!count || isText || (subQueue === "main" && !isFiltered)) return null;
  const given = Object.fromEntries(Object.entries(selected).filter(([, value]) => value));
  const base = { entity: path, sub_queue: subQueue };
  const which = isFiltered ? "all that match" : "all";
  async function resubmit() {
    const { filter, session } = given;
    const body = { ...base, ...(filter ? { filter } : {}), ...(session ? { session } : {}) };
    if (await attempt(() => post("/resubmit", body), (answer) => `${plural(answer.count, "message")} resubmitted.`)) done();
  }
  async function erase() {
    if (!(await ask({ title: `Delete ${which}?`, text: "The messages are deleted, also those that are not loaded yet. This cannot be undone.", confirm: `Delete ${which}` }))) return;
    const action = isFiltered ? () => post("/messages/delete", { ...base, ...given }) : () => post("/purge", base);
    if (await attempt(action, (answer) => `${plural(answer.count, "message")} deleted.`)) done();
  }
  return html`<div class="toolbar thin">
    ${subQueue !== "main" && !selected.state && html`<button class="small" onClick=${resubmit}>Resubmit ${which}</button>`}
    <button class="small danger" onClick=${erase}>${isFiltered ? "Delete all that match…" : "Purge…"}</button>
  </div>`;
}
