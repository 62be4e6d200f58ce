// The history of a message as a time line: who sent it, locked it, gave it back, and why it ended.

import { html } from "../vendor/htm-preact.module.js";
import { get, put } from "../api.js";
import { oneLine, visible } from "../format.js";
import { link } from "../router.js";
import { Moment, attempt, useLoaded } from "../widgets.js";

const WORDS = {
  sent: "Sent",
  scheduled: "Scheduled",
  activated: "Activated",
  matched: "Matched a rule",
  unmatched: "Matched no rule",
  deduplicated: "Dropped as a duplicate",
  locked: "Locked",
  lock_renewed: "The lock was renewed",
  received: "Received and deleted",
  abandoned: "Abandoned",
  released: "Released",
  lock_expired: "The lock expired",
  deferred: "Deferred",
  forwarded: "Forwarded",
  dead_lettered: "Dead-lettered",
  completed: "Completed",
  expired: "Expired",
  deleted: "Deleted",
  resubmitted: "Resubmitted",
};
const BAD = new Set(["unmatched", "deduplicated", "abandoned", "lock_expired", "dead_lettered", "expired", "deleted"]);

/** The facts of a transition besides what and when, as a sentence or none. */
export function facts(one) {
  const parts = [];
  if (one.client?.container_id) parts.push(html`by <a href=${link("connections", [one.client.connection])}>${oneLine(one.client.container_id)}</a>${one.client.key_name ? ` (${oneLine(one.client.key_name)})` : ""}`);
  if (one.rule) parts.push(`rule ${oneLine(one.rule)}`);
  if (one.locked_until) parts.push(html`until <${Moment} at=${one.locked_until} />`);
  if (one.to) parts.push(html`to <a href=${placeLink(one.to)}>${oneLine(one.to.entity)}${one.to.sub_queue ? " (dead letters)" : ""}</a>`);
  if (one.delivery_count) parts.push(`${one.delivery_count} failed ${one.delivery_count === 1 ? "delivery" : "deliveries"}`);
  if (one.transaction) parts.push(`in transaction ${oneLine(one.transaction)}`);
  return parts.map((part, place) => html`${place ? ", " : ""}${part}`);
}

function placeLink({ entity, sub_queue: subQueue, sequence_number: number }) {
  return number === null ? link("entity", [entity]) : link("message", [entity, subQueue ?? "main", String(number)]);
}

export const eventWord = (event) => WORDS[event] ?? event;
export const isBadEvent = (event) => BAD.has(event);

export function Timeline({ query, messageId, changed }) {
  const key = JSON.stringify(query);
  const [answer, error, reload] = useLoaded(() => load(query, messageId), [key, messageId, changed]);
  return html`<section class="panel" aria-label="History"><header><h2>History</h2>${answer && !answer.recording && html`<span class="hint">The history of messages is not recorded now.</span><div class="end"><button class="small" onClick=${() => record().then(reload)}>Record from now on</button></div>`}</header>
    ${error && html`<p class="content hint">${error.message}</p>`}
    ${answer && !answer.transitions.length && html`<p class="content hint">No transition of this message is recorded.</p>`}
    ${answer?.transitions.length > 0 && html`<ol class="timeline">
      ${answer.transitions.map((one) => html`<li key=${one.number} class=${isBadEvent(one.event) ? "bad-event" : ""}>
        <${Moment} at=${one.time} /><div><b>${eventWord(one.event)}</b> <span class="hint">in ${oneLine(one.entity)}${one.sub_queue ? ", dead letters" : ""}</span>
          <p>${facts(one)}</p>${one.reason && html`<p><span class="bad">${visible(one.reason)}</span>${one.description ? html`: ${visible(one.description)}` : ""}</p>`}</div>
      </li>`)}
    </ol>`}
  </section>`;
}

const record = () => attempt(() => put("/history", { recording: true }), "What happens to messages from now on is recorded.");

/** By its id a message is followed from queue to queue; by its number only within this one. */
async function load(query, messageId) {
  if (typeof messageId !== "string") return get("/history", { ...query, limit: 200 });
  return get("/history", { message_id: messageId, limit: 200 });
}
