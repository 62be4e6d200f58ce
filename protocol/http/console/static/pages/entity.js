// Entity: the messages of a queue or subscription by state, its rules, subscriptions, sessions and properties.

import { html, useState } from "../vendor/htm-preact.module.js";
import { get, post } from "../api.js";
import { bytes, duration, isoDuration, number, oneLine, plural, visible } from "../format.js";
import { live, useLive, useRow } from "../live.js";
import { link, replaceQuery } from "../router.js";
import { Chart, Copy, Failure, Icon, Moment, Tabs, ask, attempt, useLoaded } from "../widgets.js";
import Messages from "./messages.js";
import Rules from "./rules.js";
import { SessionTable } from "./sessions.js";

export default function Entity({ route }) {
  const path = route.rest[0] ?? "";
  const row = useRow(path);
  const [entity, error, reload] = useLoaded(() => get("/entity", { entity: path }), [path]);
  if (error && !entity) return html`<div class="page"><${Failure} error=${error} retry=${reload} /></div>`;
  if (!entity) return null;
  const kind = entity.kind;
  const hasSessions = entity.properties.requires_session === true;
  const tabs = [
    ...(kind === "topic" ? [{ id: "subscriptions", label: "Subscriptions" }, { id: "messages", label: "Scheduled" }] : [{ id: "messages", label: "Messages" }]),
    ...(kind === "subscription" ? [{ id: "rules", label: "Rules" }] : []),
    ...(hasSessions ? [{ id: "sessions", label: "Sessions" }] : []),
    { id: "properties", label: "Properties" },
  ];
  const tab = tabs.find((one) => one.id === route.query.tab)?.id ?? tabs[0].id;
  const choose = (id) => replaceQuery(id === tabs[0].id ? {} : { tab: id });
  const [topic] = path.split(/\/subscriptions\//i);
  return html`<div class="page">
    <div>
      <p class="crumbs"><a href=${link("overview")}>Overview</a>${kind === "subscription" && html` / <a href=${link("entity", [topic])}>${oneLine(topic)}</a>`}</p>
      <div class="heading">
        <h1>${visible(kind === "subscription" ? path.slice(topic.length + "/subscriptions/".length) : entity.path)}</h1>
        <span class="tag">${kind}</span>
        ${entity.properties.status && entity.properties.status !== "Active" && html`<span class="tag warn">${entity.properties.status}</span>`}
        <${Activity} row=${row} path=${path} />
        <div class="actions">
          <a class="button primary" href=${link("send", [], { entity: kind === "subscription" ? topic : path })}><${Icon} name="send" /> Send</a>
          <button class="danger" onClick=${() => purge(entity)}>Purge…</button>
        </div>
      </div>
    </div>
    <${Tabs} tabs=${tabs} chosen=${tab} choose=${choose} label="Parts of the entity" />
    ${tab === "messages" && html`<${Messages} path=${path} kind=${kind} route=${route} row=${row} />`}
    ${tab === "subscriptions" && html`<${Subscriptions} topic=${entity.path} />`}
    ${tab === "rules" && html`<${Rules} path=${path} />`}
    ${tab === "sessions" && html`<section class="panel fill"><${SessionTable} entity=${path} /></section>`}
    ${tab === "properties" && html`<${Properties} entity=${entity} />`}
  </div>`;
}

function Activity({ row, path }) {
  if (!row) return null;
  return html`<span class="hint">${plural(row.receivers, "receiver")}, ${plural(row.senders, "sender")}, ${bytes(row.size_bytes)}</span>
    ${live.rates.get(path)?.length > 0 && html`<span class="heading-chart"><${Chart} points=${live.rates.get(path)} label="Messages in the last five minutes" /></span>`}`;
}

async function purge(entity) {
  const isTopic = entity.kind === "topic";
  const sure = await ask({
    title: `Purge ${entity.path}?`,
    text: `All messages are deleted, dead letters ${isTopic ? "and the messages of all subscriptions " : ""}included. This cannot be undone.`,
    confirm: "Delete all messages",
  });
  if (sure) await attempt(() => post("/purge", { entity: entity.path }), ({ count }) => `${plural(count, "message")} deleted from ${entity.path}.`);
}

function Subscriptions({ topic }) {
  const state = useLive();
  const prefix = `${topic}/subscriptions/`.toLowerCase();
  const rows = [...state.rows.values()].filter((row) => row.path.toLowerCase().startsWith(prefix)).sort((left, right) => (left.path < right.path ? -1 : 1));
  if (!rows.length) return html`<section class="panel"><div class="empty"><p class="title">No subscriptions</p><p>Messages that are sent to a topic without subscriptions are dropped.</p></div></section>`;
  return html`<section class="panel" aria-label="Subscriptions"><div class="table natural" tabindex="0" role="region" aria-label="Table of subscriptions"><table>
    <thead><tr><th scope="col">Name</th><th scope="col" class="number">Active</th><th scope="col" class="number">Locked</th><th scope="col" class="number wide">Deferred</th><th scope="col" class="number">Dead letters</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.path} data-row=${row.path}>
      <td><a href=${link("entity", [row.path])}>${oneLine(row.path.slice(prefix.length))}</a></td>
      <td class="number">${number(row.counts.active)}</td><td class="number">${number(row.counts.locked)}</td><td class="number wide">${number(row.counts.deferred)}</td>
      <td class="number">${row.counts.dead_lettered ? html`<a class="bad" href=${link("entity", [row.path], { sub_queue: "dead_letter" })}>${number(row.counts.dead_lettered)}</a>` : "0"}</td>
    </tr>`)}</tbody></table></div></section>`;
}

function Properties({ entity }) {
  const [names, setNames] = useState("name");
  const shown = (value) => {
    if (value === null) return html`<span class="none">not set</span>`;
    const milliseconds = typeof value === "string" ? isoDuration(value) : null;
    return html`${String(value)}${milliseconds !== null && html` <span class="hint">${duration(milliseconds)}</span>`}`;
  };
  return html`<section class="panel"><header><h2>Properties</h2>
      <div class="end"><div class="segments" role="group" aria-label="Names as in">
        <button class="small" aria-pressed=${names === "name"} onClick=${() => setNames("name")}>Python</button>
        <button class="small" aria-pressed=${names === "service_name"} onClick=${() => setNames("service_name")}>.NET</button>
      </div><${Copy} text=${JSON.stringify(entity.properties, null, 2)} label="Copy as config" /></div></header>
    <table class="plain"><tbody>
      ${entity.all_properties.map((one) => html`<tr key=${one.name}><th scope="row" class="mono">${one[names]}</th><td>${shown(one.value)}${!one.is_default && html` <span class="tag accent">set</span>`}</td></tr>`)}
      <tr><th scope="row">created</th><td><${Moment} at=${entity.created_at} isLong=${true} /></td></tr>
      <tr><th scope="row">updated</th><td><${Moment} at=${entity.updated_at} isLong=${true} /></td></tr>
      <tr><th scope="row">last used</th><td><${Moment} at=${entity.accessed_at} isLong=${true} /></td></tr>
    </tbody></table></section>`;
}

