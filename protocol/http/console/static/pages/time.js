// Time: the clock of the broker and that of the namespace, and their controls.

import { html, useEffect, useState } from "../vendor/htm-preact.module.js";
import { get, post } from "../api.js";
import { duration } from "../format.js";
import { useLive } from "../live.js";
import { Failure, Moment, attempt, useLoaded, useTick } from "../widgets.js";

const STEPS = [[10, "+10 s"], [60, "+1 min"], [3600, "+1 h"], [86400, "+1 day"], [604800, "+1 week"]];

export default function Time() {
  const state = useLive();
  const [broker, error, reload] = useLoaded(() => get("/clock", {}, { scope: "broker", isQuiet: true }), [state.clock?.is_frozen]);
  const [own, , reloadOwn] = useLoaded(() => (state.namespace ? get(`/namespaces/${encodeURIComponent(state.namespace)}/clock`, {}, { scope: "broker" }) : Promise.resolve(null)), [state.namespace, state.clock?.ahead_ms]);
  const again = () => {
    reload();
    reloadOwn();
  };
  return html`<div class="page narrow">
    <h1>Time</h1>
    <p class="hint">Locks, schedules, times to live and duplicate windows follow the clock, so no test has to wait. A clock moves only forward. A restart of the broker sets all clocks back to the system clock.</p>
    ${error ? html`<${Failure} error=${error.status === 401 ? { message: "The clock of the whole broker needs the broker's own key." } : error} />` : broker && html`<${Clock} title="Clock of the broker" clock=${broker} path="/clock" again=${again} isWhole=${true} />`}
    ${own && html`<${Clock} title=${`Clock of ${state.namespace}`} clock=${own} path=${`/namespaces/${encodeURIComponent(state.namespace)}/clock`} again=${again} />`}
  </div>`;
}

function Clock({ title, clock, path, again, isWhole = false }) {
  useTick();
  const [readAt, setReadAt] = useState(Date.now());
  useEffect(() => setReadAt(Date.now()), [clock]);
  const [seconds, setSeconds] = useState("");
  const [until, setUntil] = useState("");
  const at = clock.is_frozen ? clock.now_ms : clock.now_ms + Date.now() - readAt;
  const run = async (action, said) => (await attempt(action, said)) && again();
  const advance = (amount) => run(() => post(`${path}/advance`, { seconds: amount }, { scope: "broker" }), `The clock was moved by ${duration(amount * 1000)}.`);
  const ahead = clock.ahead_ms;
  return html`<section class="panel" aria-label=${title}><header><h2>${title}</h2>${clock.is_frozen && html`<span class="tag warn">frozen</span>`}
      <span class="hint">${Math.abs(ahead) < 1000 ? "as the system clock" : `${duration(Math.abs(ahead))} ${ahead > 0 ? "ahead of" : "behind"} the system clock`}</span></header>
    <div class="content stack">
      <p class="clock-face"><${Moment} at=${at} isLong=${true} /></p>
      <div class="buttons">${STEPS.map(([amount, label]) => html`<button key=${label} onClick=${() => advance(amount)}>${label}</button>`)}
        ${isWhole && html`<button onClick=${() => run(() => post(`${path}/${clock.is_frozen ? "resume" : "freeze"}`, {}, { scope: "broker" }), clock.is_frozen ? "The clock runs again." : "The clock stands still.")}>${clock.is_frozen ? "Resume" : "Freeze"}</button>`}</div>
      <div class="fields pairwise">
        <form class="field" onSubmit=${(event) => { event.preventDefault(); advance(Number(seconds)); }}><span id=${`s-${path}`}>Move ahead by seconds</span><div class="pair"><input type="number" min="0" step="any" required aria-labelledby=${`s-${path}`} value=${seconds} onInput=${(event) => setSeconds(event.target.value)} /><button type="submit">Move</button></div></form>
        ${isWhole && html`<form class="field" onSubmit=${(event) => { event.preventDefault(); run(() => post(`${path}/set`, { time: new Date(until).toISOString() }, { scope: "broker" }), "The clock was set."); }}><span id=${`u-${path}`}>Set to (your zone)</span><div class="pair"><input type="datetime-local" step="1" required aria-labelledby=${`u-${path}`} value=${until} onInput=${(event) => setUntil(event.target.value)} /><button type="submit">Set</button></div></form>`}
      </div>
    </div></section>`;
}
