// The parts of which pages are made: times, icons, charts, dialogs, notices, empty states.

import { html, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.module.js";
import { duration, moment, timeZone, visible } from "./format.js";
import { now } from "./live.js";

// --- settings of the viewer -------------------------------------------------------------------------------------

const settings = { isUtc: localStorage.getItem("peeklock.utc") === "true" };
const watchers = new Set();

export function setUtc(isUtc) {
  settings.isUtc = isUtc;
  localStorage.setItem("peeklock.utc", isUtc);
  for (const watcher of [...watchers]) watcher(isUtc);
}

export function useUtc() {
  const [isUtc, set] = useState(settings.isUtc);
  useEffect(() => {
    watchers.add(set);
    return () => watchers.delete(set);
  }, []);
  return isUtc;
}

export function useTheme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "");
  function choose(name) {
    if (name) {
      document.documentElement.dataset.theme = name;
      localStorage.setItem("peeklock.theme", name);
    } else {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("peeklock.theme");
    }
    setTheme(name);
  }
  return [theme, choose];
}

/** Draws the component again every so often, for ages and countdowns, and returns how often it did. */
export function useTick(intervalMs = 1000) {
  const [count, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && tick((before) => before + 1), intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs]);
  return count;
}

// --- times --------------------------------------------------------------------------------------------------------

/** A moment in the zone of the viewer; the tooltip has it in the zone, in UTC and as an age. */
export function Moment({ at, isLong = false }) {
  const isUtc = useUtc();
  if (!at) return html`<span class="none">–</span>`;
  const milliseconds = typeof at === "number" ? at : Date.parse(at);
  const title = `${moment(milliseconds, false, true)} ${timeZone()}\n${moment(milliseconds, true, true)}\n${relative(milliseconds)}`;
  return html`<time datetime=${new Date(milliseconds).toISOString()} title=${title}>${moment(milliseconds, isUtc, isLong)}</time>`;
}

export function relative(milliseconds) {
  const difference = now() - milliseconds;
  return difference >= 0 ? `${duration(difference)} ago` : `in ${duration(-difference)}`;
}

/** How long ago something was, by the clock of the namespace. */
export function Age({ at }) {
  useTick();
  if (!at) return html`<span class="none">–</span>`;
  const milliseconds = Date.parse(at);
  const title = `${moment(milliseconds, false, true)} ${timeZone()}\n${moment(milliseconds, true, true)}`;
  return html`<time datetime=${at} title=${title}>${duration(Math.max(0, now() - milliseconds))}</time>`;
}

// --- pictures -----------------------------------------------------------------------------------------------------

const PATHS = {
  overview: "M3 3h7v8H3zM14 3h7v5h-7zM14 12h7v9h-7zM3 15h7v6H3z",
  send: "M21 3 10 14M21 3l-7 18-4-7-7-4z",
  sessions: "M8 6h13M8 12h13M8 18h13M3.5 6h.01M3.5 12h.01M3.5 18h.01",
  connections: "M9 7H6a5 5 0 0 0 0 10h3M15 7h3a5 5 0 0 1 0 10h-3M8 12h8",
  time: "M12 7v5l3 2M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0z",
  faults: "M13 2 4 14h7l-1 8 9-12h-7z",
  connect: "M8 8l-4 4 4 4M16 8l4 4-4 4M14 5l-4 14",
  history: "M3 12a9 9 0 1 0 3-6.7L3 8M3 3v5h5M12 8v5l3 2",
  queue: "M4 5h16v4H4zM4 15h16v4H4z",
  topic: "M5 12h5M14 6h5M14 12h5M14 18h5M10 12l4-6M10 12h4M10 12l4 6",
  subscription: "M4 6h16v12H4zM4 7l8 6 8-6",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12l5 5L20 7",
  alert: "M12 4 2.5 20h19zM12 10v4M12 17h.01",
  close: "M6 6l12 12M18 6 6 18",
  chevron: "M9 6l6 6-6 6",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  system: "M3 4h18v12H3zM8 20h8M12 16v4",
  snow: "M12 2v20M4 7l16 10M20 7 4 17",
};

export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path d=${PATHS[name]} /></svg>`;
}

/** Rates in and out over the last minutes. `points` are [real time in ms, in, out]; gaps count as nothing. */
export function Chart({ points, label, isLarge = false, minutes = 5 }) {
  const width = isLarge ? 600 : 96;
  const height = isLarge ? 120 : 22;
  const end = Math.floor(Date.now() / 1000) * 1000;
  const begin = end - minutes * 60_000;
  const count = isLarge ? 150 : 48;
  const step = (end - begin) / count;
  const series = [new Array(count).fill(0), new Array(count).fill(0)];
  const seen = new Array(count).fill(0);
  for (const [at, incoming, outgoing] of points ?? []) {
    const place = Math.floor((at - begin) / step);
    if (place < 0 || place >= count) continue;
    seen[place] += 1;
    series[0][place] += incoming;
    series[1][place] += outgoing;
  }
  const values = series.map((one) => one.map((sum, place) => (seen[place] ? sum / seen[place] : 0)));
  const highest = Math.max(...values[0], ...values[1], 1);
  const x = (place) => ((place / (count - 1)) * width).toFixed(1);
  const y = (value) => (height - 1.5 - (value / highest) * (height - 3)).toFixed(1);
  const line = (one) => one.map((value, place) => `${place ? "L" : "M"}${x(place)} ${y(value)}`).join("");
  const area = `${line(values[0])}L${width} ${height}L0 ${height}Z`;
  return html`<svg class=${`chart ${isLarge ? "large" : ""}`} viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label=${label}>
    <path class="area" d=${area} /><path class="out" d=${line(values[1])} /><path class="in" d=${line(values[0])} />
  </svg>`;
}

// --- notices ------------------------------------------------------------------------------------------------------

const notices = { list: [], next: 1, update: () => {} };

/** Says for a few seconds what was done, or what went wrong. */
export function notify(text, kind = "done") {
  const one = { id: notices.next++, text, kind };
  notices.list = [...notices.list.slice(-3), one];
  notices.update(notices.list);
  setTimeout(() => dismiss(one.id), kind === "error" ? 12_000 : 5_000);
}

function dismiss(id) {
  notices.list = notices.list.filter((one) => one.id !== id);
  notices.update(notices.list);
}

export function Notices() {
  const [list, setList] = useState(notices.list);
  notices.update = setList;
  return html`<div class="notices" role="status" aria-live="polite">
    ${list.map((one) => html`<div key=${one.id} class=${`notice ${one.kind}`}>
      <span>${visible(one.text)}</span>
      <button class="plain" onClick=${() => dismiss(one.id)} aria-label="Dismiss"><${Icon} name="close" /></button>
    </div>`)}
  </div>`;
}

/** Runs an action of a button: reports its result, or the error as a sentence. Returns whether it succeeded. */
export async function attempt(action, said) {
  try {
    const result = await action();
    const text = typeof said === "function" ? said(result) : said;
    if (text) notify(text);
    return true;
  } catch (error) {
    notify(error.message, "error");
    return false;
  }
}

// --- dialogs ------------------------------------------------------------------------------------------------------

const dialogs = { open: () => {} };

/** Asks before something is lost. Resolves to the values of the fields, or null if the viewer cancels. */
export function ask({ title, text, confirm, isDanger = true, fields = [] }) {
  return new Promise((resolve) => dialogs.open({ title, text, confirm, isDanger, fields, resolve }));
}

export function Dialogs() {
  const [shown, setShown] = useState(null);
  const element = useRef(null);
  dialogs.open = setShown;
  useLayoutEffect(() => {
    if (shown && !element.current.open) element.current.showModal();
  }, [shown]);
  if (!shown) return null;
  function finish(result) {
    setShown(null);
    shown.resolve(result);
  }
  function submit(event) {
    event.preventDefault();
    finish(Object.fromEntries(new FormData(event.target)));
  }
  return html`<dialog ref=${element} onClose=${() => finish(null)} aria-labelledby="dialog-title">
    <form method="dialog" onSubmit=${submit}>
      <h2 id="dialog-title">${shown.title}</h2>
      ${shown.text && html`<p>${shown.text}</p>`}
      ${shown.fields.map((field) => html`<label class="field" key=${field.name}>
        <span>${field.label}</span>
        <input name=${field.name} value=${field.value ?? ""} placeholder=${field.placeholder ?? ""} list=${field.list} />
      </label>`)}
      <div class="buttons">
        <button type="button" onClick=${() => finish(null)}>Cancel</button>
        <button type="submit" class=${shown.isDanger ? "danger" : "primary"}>${shown.confirm}</button>
      </div>
    </form>
  </dialog>`;
}

// --- other parts --------------------------------------------------------------------------------------------------

export function Copy({ text, label = "Copy" }) {
  const [isDone, setDone] = useState(false);
  async function copy() {
    await copyText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  }
  return html`<button class="small" onClick=${copy}><${Icon} name=${isDone ? "check" : "copy"} /> ${isDone ? "Copied" : label}</button>`;
}

async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea"); // a page without TLS on another host has no clipboard
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="title">${title}</p><div>${children}</div></div>`;
}

export function Failure({ error, retry }) {
  return html`<div class="failure" role="alert"><${Icon} name="alert" /><p>${error.message}</p>
    ${retry && html`<button class="small" onClick=${retry}>Try again</button>`}</div>`;
}

/** Shows what is wrong with a page instead of an empty window. */
export function Guard({ children }) {
  const [error, reset] = useErrorBoundary((caught) => console.error(caught));
  if (error) return html`<${Failure} error=${{ message: `The page has a mistake: ${error.message}.` }} retry=${reset} />`;
  return children;
}

export function Tabs({ tabs, chosen, choose, label }) {
  function onKeyDown(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const place = tabs.findIndex((one) => one.id === chosen);
    choose(tabs[(place + step + tabs.length) % tabs.length].id);
    event.currentTarget.children[(place + step + tabs.length) % tabs.length].focus();
    event.preventDefault();
  }
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${onKeyDown}>
    ${tabs.map((one) => html`<button key=${one.id} role="tab" id=${`tab-${one.id}`} aria-selected=${one.id === chosen}
      tabindex=${one.id === chosen ? 0 : -1} onClick=${() => choose(one.id)}>${one.label}${one.count !== undefined && html` <span class="count">${one.count}</span>`}</button>`)}
  </div>`;
}

/** Loads something when the page opens and when `keys` change. Returns [value, error, reload]. */
export function useLoaded(load, keys) {
  const [state, setState] = useState({ value: null, error: null });
  const [round, setRound] = useState(0);
  useEffect(() => {
    let isCurrent = true;
    load().then(
      (value) => isCurrent && setState({ value, error: null }),
      (error) => isCurrent && setState((before) => ({ value: before.value, error })),
    );
    return () => {
      isCurrent = false;
    };
  }, [...keys, round]);
  return [state.value, state.error, () => setRound((count) => count + 1)];
}

export function download(name, content, type = "application/octet-stream") {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
