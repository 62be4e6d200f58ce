// The AMQP frames of a connection: those that were recorded, and those that come while one looks.

import { html, useEffect, useState } from "../vendor/htm-preact.module.js";
import { get, put, stream } from "../api.js";
import { bytes, shown } from "../format.js";
import { Moment, attempt, useLoaded } from "../widgets.js";

const KEPT = 500;

export function Frames({ connection, isClosed = false }) {
  const [recorded, error, reload] = useLoaded(() => get("/frames", { connection, last: KEPT }), [connection]);
  const [live, setLive] = useState([]);
  const [isLive, setWatching] = useState(false);
  useEffect(() => {
    if (!isLive || isClosed) return undefined;
    return stream(`/connections/${encodeURIComponent(connection)}/frames/stream`, {}, {
      isOnce: true,
      event: (frame, name) => name !== "dropped" && setLive((before) => [...before.slice(-KEPT + 1), frame]),
      failed: () => setWatching(false),
    });
  }, [connection, isLive, isClosed]);
  const last = recorded?.frames.at(-1)?.number ?? 0;
  const frames = [...(recorded?.frames ?? []), ...live.filter((one) => one.number > last)];
  const record = (recording) => attempt(() => put("/frames", { recording }), recording ? "The frames of all connections of the namespace are recorded." : "Frames are not recorded any more.").then(reload);
  return html`<section class="panel" aria-label="Frames"><header><h2>Frames</h2><span class="hint">What the client and the broker say to each other, without secrets.</span>
      <div class="end">${!isClosed && html`<button class="small" aria-pressed=${isLive} onClick=${() => setWatching(!isLive)}>${isLive ? "Stop watching" : "Watch live"}</button>`}
        ${recorded && html`<button class="small" aria-pressed=${recorded.recording} onClick=${() => record(!recorded.recording)}>${recorded.recording ? "Stop recording" : "Record"}</button><button class="small" onClick=${reload}>Load again</button>`}</div></header>
    ${error && html`<p class="content hint">${error.message}</p>`}
    ${!error && !frames.length && html`<p class="content hint">${isLive ? "Waiting for frames." : recorded?.recording ? "No frame of this connection is recorded yet." : "No frame is recorded. Watch those that come, or record those of all connections."}</p>`}
    ${frames.length > 0 && html`<ol class="frames" tabindex="0" aria-label="Frames">${frames.map((one) => html`<li key=${one.number} class=${one.direction}>
      <${Moment} at=${one.time} /><span class="direction" title=${one.direction === "in" ? "from the client" : "to the client"}>${one.direction === "in" ? "→" : "←"}<span class="unseen">${one.direction === "in" ? "from the client" : "to the client"}</span></span>
      <b>${one.performative}</b><code>${shown(one.fields)}${one.payload_bytes ? ` + ${bytes(one.payload_bytes)}` : ""}${one.error ? ` ${one.error}` : ""}</code></li>`)}</ol>`}
  </section>`;
}
