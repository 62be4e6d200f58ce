// Overview: all queues, topics and subscriptions of the namespace, live.

import { html, useCallback, useEffect, useMemo, useState } from "../vendor/htm-preact.module.js";
import { get } from "../api.js";
import { number, oneLine, plural, rate } from "../format.js";
import { useLive } from "../live.js";
import { go, link } from "../router.js";
import { Table } from "../table.js";
import { Age, Chart, Empty, Icon, useLoaded, useTick } from "../widgets.js";

const SUBSCRIPTIONS = "/subscriptions/";
const total = (counts) => counts.active + counts.locked + counts.deferred + counts.scheduled;

const SORTS = {
  active: (row) => row.counts.active,
  locked: (row) => row.counts.locked,
  later: (row) => row.counts.deferred + row.counts.scheduled,
  dead: (row) => row.counts.dead_lettered + row.counts.transfer_dead_lettered,
  in: (row) => row.incoming_per_s,
  out: (row) => row.outgoing_per_s,
  oldest: (row) => (row.oldest_enqueued ? -Date.parse(row.oldest_enqueued) : -Infinity),
};

export default function Overview() {
  const state = useLive();
  const [text, setText] = useState("");
  const [kind, setKind] = useState("all");
  const [sort, setSort] = useState({ id: "name", isDown: false });
  const rows = useMemo(() => listed(state.rows, text, kind, sort), [state.version, text, kind, sort]);
  useEffect(() => {
    if (state.hasData) performance.mark("first-view");
  }, [state.hasData]);
  const open = useCallback((row) => go("entity", [row.path]), []);
  return html`<div class="page overview">
    <h1 class="unseen">Overview</h1>
    <${Totals} state=${state} />
    <${Alerts} alerts=${state.alerts} />
    <${OtherNamespaces} current=${state.namespace} />
    <section class="panel fill" aria-label="Entities">
      <div class="toolbar">
        <label class="search"><${Icon} name="search" /><span class="unseen">Search entities</span>
          <input type="search" placeholder="Search entities" value=${text} onInput=${(event) => setText(event.target.value)} />
        </label>
        <div class="segments" role="group" aria-label="Which entities">
          ${[["all", "All"], ["queue", "Queues"], ["topic", "Topics"], ["messages", "With messages"]].map(([id, label]) => html`<button key=${id} aria-pressed=${kind === id} onClick=${() => setKind(id)}>${label}</button>`)}
        </div>
        <span class="hint">${state.hasData ? plural(rows.length, "entity", "entities") : ""}</span>
      </div>
      <${Table} label="Entities" columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.path} rowClass=${(row) => row.kind} open=${open} sort=${sort} setSort=${setSort}
        empty=${state.hasData ? html`<${Nothing} hasAny=${state.rows.size > 0} />` : null} />
    </section>
  </div>`;
}

function Nothing({ hasAny }) {
  if (hasAny) return html`<${Empty} title="No entity matches"><p>Change the search, or choose All.</p><//>`;
  return html`<${Empty} title="This namespace has no entities">
    <p>Declare queues and topics in a config file, or create one with the administration client of your SDK.
    The page <a href=${link("connect")}>Connect</a> has the connection string.</p>
  <//>`;
}

/** Returns the rows to show: subscriptions below their topic if they are sorted by name. */
function listed(rows, text, kind, sort) {
  const wanted = text.trim().toLowerCase();
  const fits = (row) =>
    (!wanted || row.path.toLowerCase().includes(wanted)) &&
    (kind === "all" || (kind === "messages" ? total(row.counts) + SORTS.dead(row) > 0 : kind === "queue" ? row.kind === "queue" : row.kind !== "queue"));
  const chosen = [...rows.values()].filter(fits);
  // A topic comes before its subscriptions: "/subscriptions/" sorts as if it were the end of the name.
  const name = (row) => row.path.toLowerCase().replace(SUBSCRIPTIONS, "\u0001");
  const keys = new Map(chosen.map((row) => [row, name(row)]));
  const byName = (left, right) => (keys.get(left) < keys.get(right) ? -1 : 1);
  const value = SORTS[sort.id];
  chosen.sort(value ? (left, right) => (sort.isDown ? value(right) - value(left) : value(left) - value(right)) || byName(left, right) : byName);
  return sort.isDown && !value ? chosen.reverse() : chosen;
}

const count = (value, kind = "") => (value ? html`<span class=${kind}>${number(value)}</span>` : html`<span class="none">0</span>`);
const perSecond = (value) => (value ? rate(value) : html`<span class="none">0</span>`);

const COLUMNS = [
  {
    id: "name",
    label: "Name",
    className: "name",
    sort: "up",
    cell: (row) => {
      const [topic, name] = row.path.split(new RegExp(SUBSCRIPTIONS, "i"));
      return html`<span class="entity-name"><${Icon} name=${row.kind} /><a href=${link("entity", [row.path])} title=${row.path}>${row.kind === "subscription" ? html`<span class="of">${oneLine(topic)} / </span>${oneLine(name)}` : oneLine(row.path)}</a>
        ${row.held_sessions !== null && html`<span class="tag">sessions</span>`}</span>`;
    },
  },
  { id: "active", label: "Active", className: "number", sort: "down", cell: (row) => count(row.counts.active) },
  { id: "locked", label: "Locked", className: "number", sort: "down", cell: (row) => count(row.counts.locked) },
  { id: "later", label: "Later", title: "Deferred and scheduled messages", className: "number wide", sort: "down", cell: (row) => count(row.counts.deferred + row.counts.scheduled) },
  {
    id: "dead",
    label: "Dead letters",
    className: "number",
    sort: "down",
    cell: (row) => {
      const dead = row.counts.dead_lettered + row.counts.transfer_dead_lettered;
      return dead ? html`<a class="bad" href=${link("entity", [row.path], { sub_queue: row.counts.dead_lettered ? "dead_letter" : "transfer_dead_letter" })}>${number(dead)}</a>` : count(0);
    },
  },
  { id: "in", label: "In /s", className: "number", sort: "down", cell: (row) => perSecond(row.incoming_per_s) },
  { id: "out", label: "Out /s", className: "number", sort: "down", cell: (row) => perSecond(row.outgoing_per_s) },
  { id: "chart", label: "5 minutes", className: "chart-column wide", cell: (row) => html`<${RowChart} path=${row.path} />` },
  { id: "oldest", label: "Oldest", title: "How long the oldest message is there", className: "number wide", sort: "down", cell: (row) => html`<${Age} at=${row.oldest_enqueued} />` },
];

function RowChart({ path }) {
  const state = useLive();
  const points = state.rates.get(path);
  if (!points?.length) return null;
  return html`<${Chart} points=${points} label=${`Messages of ${path} in the last five minutes`} />`;
}

function Totals({ state }) {
  useTick();
  const sums = { active: 0, locked: 0, deferred: 0, scheduled: 0, dead: 0, in: 0, out: 0 };
  let oldest = null;
  for (const row of state.rows.values()) {
    sums.active += row.counts.active;
    sums.locked += row.counts.locked;
    sums.deferred += row.counts.deferred;
    sums.scheduled += row.counts.scheduled;
    sums.dead += row.counts.dead_lettered + row.counts.transfer_dead_lettered;
    if (row.kind !== "subscription") sums.in += row.incoming_per_s;
    sums.out += row.outgoing_per_s;
    if (row.oldest_enqueued && (!oldest || row.oldest_enqueued < oldest)) oldest = row.oldest_enqueued;
  }
  return html`<section class="totals" aria-label="All entities">
    <dl>
      <div><dt>Active</dt><dd>${number(sums.active)}</dd></div>
      <div><dt>Locked</dt><dd>${number(sums.locked)}</dd></div>
      <div><dt>Deferred</dt><dd>${number(sums.deferred)}</dd></div>
      <div><dt>Scheduled</dt><dd>${number(sums.scheduled)}</dd></div>
      <div><dt>Dead letters</dt><dd class=${sums.dead ? "bad" : ""}>${number(sums.dead)}</dd></div>
      <div><dt>Oldest message</dt><dd><${Age} at=${oldest} /></dd></div>
    </dl>
    <figure>
      <figcaption><span class="key in">In <b>${rate(sums.in)}</b> /s</span><span class="key out">Out <b>${rate(sums.out)}</b> /s</span><span class="hint">last 5 minutes</span></figcaption>
      <${Chart} points=${state.total} isLarge=${true} label=${`Messages in and out in the last five minutes; now ${rate(sums.in)} in and ${rate(sums.out)} out for each second`} />
    </figure>
  </section>`;
}

function Alerts({ alerts }) {
  const [isOpen, setOpen] = useState(false);
  if (!alerts.length) return null;
  const shown = isOpen ? alerts : alerts.slice(0, 3);
  return html`<section class="alerts" aria-label="Alerts">
    <ul>
      ${shown.map((one) => html`<li key=${one.kind + one.entity + one.connection} class=${one.kind}><${Icon} name="alert" />
        <a href=${target(one)}>${oneLine(one.message)}</a></li>`)}
    </ul>
    ${alerts.length > 3 && html`<button class="small" onClick=${() => setOpen(!isOpen)}>${isOpen ? "Show fewer" : `Show all ${alerts.length}`}</button>`}
  </section>`;
}

function target(alert) {
  if (alert.kind === "dead_letters_growing") return link("entity", [alert.entity], { sub_queue: "dead_letter" });
  if (alert.kind === "locks_expiring") return link("entity", [alert.entity], { state: "locked" });
  return alert.entity ? link("entity", [alert.entity]) : link("connections", [alert.connection]);
}

function OtherNamespaces({ current }) {
  const [list] = useLoaded(() => get("/namespaces", {}, { scope: "broker", isQuiet: true }).then((answer) => answer.namespaces, () => []), [current]);
  if (!list || list.length < 2) return null;
  return html`<details class="panel namespaces"><summary>${plural(list.length, "namespace")}</summary>
    <ul>${list.map((one) => html`<li key=${one.name}><a href=${link("overview", [], {}, one.is_default ? null : one.name)} aria-current=${one.name === current ? "true" : undefined}>${one.name}</a>
      <span class="hint">${plural(one.entities, "entity", "entities")}, ${plural(one.messages, "message")}${one.ephemeral ? ", ephemeral" : ""}</span></li>`)}</ul>
  </details>`;
}
