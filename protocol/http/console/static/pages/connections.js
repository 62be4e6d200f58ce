// Connections: the AMQP clients with their links, credit, unsettled messages, last errors and frames.

import { html, useState } from "../vendor/htm-preact.module.js";
import { get } from "../api.js";
import { number, oneLine, plural, visible } from "../format.js";
import { useLive } from "../live.js";
import { link } from "../router.js";
import { Empty, Failure, Icon, Moment, useLoaded, useTick } from "../widgets.js";
import { Frames } from "./frames.js";

const REFRESH_MS = 2000;

export default function Connections({ route }) {
  const { connections: count } = useLive();
  const round = useTick(REFRESH_MS);
  const [answer, error, reload] = useLoaded(() => get("/connections"), [count, round]);
  const [text, setText] = useState("");
  const chosen = route.rest[0];
  if (error && !answer) return html`<div class="page"><${Failure} error=${error} retry=${reload} /></div>`;
  if (!answer) return null;
  const wanted = text.trim().toLowerCase();
  const fits = (one) => !wanted || JSON.stringify([one.container_id, one.client, one.product, one.links.map((each) => each.address)]).toLowerCase().includes(wanted);
  const one = answer.connections.find((each) => each.id === chosen);
  if (chosen) return html`<div class="page"><p class="crumbs"><a href=${link("connections")}>Connections</a></p><${Connection} one=${one} id=${chosen} /></div>`;
  const shown = answer.connections.filter(fits);
  return html`<div class="page">
    <h1>Connections</h1>
    ${answer.connections.length
      ? html`<section class="panel fill" aria-label="Connections"><div class="toolbar"><label class="search"><${Icon} name="search" /><span class="unseen">Search connections</span>
            <input type="search" placeholder="Container id, address, entity" value=${text} onInput=${(event) => setText(event.target.value)} /></label><span class="hint">${plural(shown.length, "connection")}</span></div>
          <div class="table" tabindex="0" role="region" aria-label="Table of connections"><table>
          <thead><tr><th scope="col">Container id</th><th scope="col">Client</th><th scope="col" class="wide">Product</th><th scope="col" class="wide">Opened</th><th scope="col" class="number">Links</th><th scope="col" class="number">Unsettled</th><th scope="col">Last error</th></tr></thead>
          <tbody>${shown.map((each) => html`<tr key=${each.id} data-row=${each.id}>
            <td class="long"><a href=${link("connections", [each.id])}>${oneLine(each.container_id || each.id)}</a></td>
            <td>${oneLine(each.client)}</td><td class="wide">${oneLine(each.product ?? "–")}</td><td class="wide"><${Moment} at=${each.opened_at} /></td>
            <td class="number">${number(each.links.length)}</td><td class="number">${number(each.links.reduce((sum, one) => sum + one.unsettled, 0))}</td>
            <td class="long">${each.last_error ? html`<span class="bad" title=${each.last_error.message}>${oneLine(each.last_error.condition)}</span>` : html`<span class="none">–</span>`}</td></tr>`)}</tbody></table></div></section>`
      : html`<${Empty} title="No client is connected"><p><a href=${link("connect")}>Connect</a> has the connection string and a snippet for each SDK.</p><//>`}
  </div>`;
}

function Connection({ one, id }) {
  if (!one) {
    return html`<${Empty} title="This connection is closed"><p>Its client may have connected again: see <a href=${link("connections")}>all connections</a>.</p><//><${Frames} connection=${id} isClosed=${true} />`;
  }
  return html`
    <div class="heading"><h1>${visible(one.container_id || one.id)}</h1><span class="hint">${oneLine(one.client)}</span></div>
    ${one.last_error && html`<section class="panel why" aria-label="Last error"><div class="content stack"><h2>Last error</h2>
      <dl class="pairs"><div><dt>Condition</dt><dd class="bad">${visible(one.last_error.condition)}</dd></div><div><dt>At</dt><dd><${Moment} at=${one.last_error.at} isLong=${true} /></dd></div><div><dt>Message</dt><dd>${visible(one.last_error.message)}</dd></div></dl></div></section>`}
    <section class="panel" aria-label="Links"><header><h2>${plural(one.links.length, "link")}</h2></header>
      <div class="table natural" tabindex="0" role="region" aria-label="Table of links"><table><thead><tr><th scope="col">Address</th><th scope="col">Client is</th><th scope="col" class="wide">Session</th><th scope="col" class="number">Credit</th><th scope="col" class="number">Unsettled</th><th scope="col" class="number">Messages</th><th scope="col" class="wide">Name</th></tr></thead>
        <tbody>${one.links.map((each) => html`<tr key=${each.name + each.role}><td class="long">${oneLine(each.address)}</td><td>${each.role}</td><td class="wide">${each.session_id === null ? html`<span class="none">–</span>` : oneLine(each.session_id)}</td>
          <td class="number">${number(each.credit)}</td><td class="number">${number(each.unsettled)}</td><td class="number">${number(each.deliveries)}</td><td class="wide long" title=${each.name}>${oneLine(each.name)}</td></tr>`)}</tbody></table></div></section>
    <section class="panel" aria-label="About"><table class="plain"><tbody>
      <tr><th scope="row">id</th><td class="mono">${one.id}</td></tr><tr><th scope="row">product</th><td>${visible(one.product ?? "not told")}</td></tr>
      <tr><th scope="row">host name</th><td>${visible(one.host)}</td></tr><tr><th scope="row">opened</th><td><${Moment} at=${one.opened_at} isLong=${true} /></td></tr></tbody></table></section>
    <${Frames} connection=${one.id} />`;
}
