// The frame around the pages: navigation, the namespace, the state of the connection, and which page is shown.

import { html, render, useEffect, useRef, useState } from "./vendor/htm-preact.module.js";
import * as api from "./api.js";
import { live, open, useLive } from "./live.js";
import { current, link, useRoute } from "./router.js";
import { duration } from "./format.js";
import { Dialogs, Empty, Failure, Guard, Icon, Moment, Notices, setUtc, useLoaded, useTheme, useTick, useUtc } from "./widgets.js";
import Overview from "./pages/overview.js";

const PAGES = {
  overview: { title: "Overview", icon: "overview", component: Overview },
  send: { title: "Send", icon: "send", load: () => import("./pages/send.js") },
  sessions: { title: "Sessions", icon: "sessions", load: () => import("./pages/sessions.js") },
  connections: { title: "Connections", icon: "connections", load: () => import("./pages/connections.js") },
  history: { title: "History", icon: "history", load: () => import("./pages/history.js") },
  time: { title: "Time", icon: "time", load: () => import("./pages/time.js") },
  faults: { title: "Faults", icon: "faults", load: () => import("./pages/faults.js") },
  connect: { title: "Connect", icon: "connect", load: () => import("./pages/connect.js") },
  entity: { title: "Entity", parent: "overview", load: () => import("./pages/entity.js") },
  message: { title: "Message", parent: "overview", load: () => import("./pages/message.js") },
  "sign-in": { title: "Sign in", load: () => import("./sign-in.js") },
};

let opened = null;

/** Opens the stream of the overview once for each namespace and each token. */
function openFor(namespace, round) {
  const wanted = JSON.stringify([namespace, round]);
  if (wanted === opened) return;
  opened = wanted;
  api.setNamespace(namespace);
  open();
}

function App() {
  const route = useRoute();
  const [refusal, setRefusal] = useState(null);
  const [round, setRound] = useState(0);
  const main = useRef(null);
  const isFirst = useRef(true);
  api.setNamespace(route.namespace);
  api.whenUnauthorized(setRefusal);

  useEffect(() => openFor(route.namespace, round), [route.namespace, round]);

  const place = [route.page, ...route.rest].join("/");
  useEffect(() => {
    if (!isFirst.current) main.current?.focus();
    isFirst.current = false;
    window.scrollTo(0, 0);
  }, [place, route.namespace]);

  function signedIn() {
    setRefusal(null);
    setRound((count) => count + 1);
  }

  const name = refusal ? "sign-in" : route.page in PAGES ? route.page : "overview";
  return html`<div class="frame">
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <${Side} page=${name} namespace=${route.namespace} isSignedIn=${!refusal} round=${round} signOut=${() => { api.token.clear(); setRefusal("You have signed out."); }} />
    <main id="main" ref=${main} tabindex="-1">
      <${Guard} key=${`${name}/${place}/${route.namespace}`}>
        <${Page} name=${name} route=${route} refusal=${refusal} signedIn=${signedIn} />
      <//>
    </main>
    <${Notices} />
    <${Dialogs} />
  </div>`;
}

function Page({ name, route, refusal, signedIn }) {
  const page = PAGES[name];
  const [module, error, retry] = useLoaded(async () => page.component ?? (await page.load()).default, [name]);
  const state = useLive();
  useEffect(() => {
    const about = name === "entity" || name === "message" ? route.rest[0] : page.title;
    document.title = `${about} – Peeklock`;
  }, [name, route]);
  if (!refusal && state.state === "failed" && state.error.status >= 400 && !state.hasData) {
    return html`<${Unavailable} error=${state.error} />`;
  }
  if (error) return html`<${Failure} error=${{ message: "A part of the console could not be loaded. The broker may have been stopped." }} retry=${retry} />`;
  const Component = page.component ?? module;
  if (!Component) return null;
  return html`<${Component} route=${route} refusal=${refusal} signedIn=${signedIn} />`;
}

function Unavailable({ error }) {
  if (error.code === "control_api_off") {
    return html`<${Empty} title="The control API is off">
      <p>The console shows what the control API answers. Start the broker with <code>--control-api on</code>.</p>
    <//>`;
  }
  return html`<${Failure} error=${error} retry=${open} />`;
}

function Side({ page, namespace, isSignedIn, round, signOut }) {
  const state = useLive();
  const chosen = PAGES[page].parent ?? page;
  return html`<header class="side">
    <a class="brand" href=${link("overview")}><img src="/$peeklock/console/icon.svg" alt="" width="24" height="24" /><span>Peeklock</span></a>
    ${isSignedIn && html`<${Namespaces} namespace=${namespace} round=${round} />`}
    <nav aria-label="Pages">
      ${Object.entries(PAGES).filter(([, one]) => one.icon).map(([name, one]) => html`<a key=${name} href=${link(name)} aria-current=${name === chosen ? "page" : undefined}>
        <${Icon} name=${one.icon} /><span>${one.title}</span>
        ${name === "overview" && state.alerts.length > 0 && html`<span class="badge" title="alerts">${state.alerts.length}<span class="unseen"> alerts</span></span>`}
        ${name === "connections" && state.connections > 0 && html`<span class="badge quiet">${state.connections}<span class="unseen"> connections</span></span>`}
      </a>`)}
    </nav>
    <div class="foot">
      <${Clock} />
      <${ConnectionState} />
      <${Preferences} isSignedIn=${isSignedIn} signOut=${signOut} />
    </div>
  </header>`;
}

function Namespaces({ namespace, round }) {
  // A key of one namespace may not list them all. Then there is nothing to choose.
  const [list] = useLoaded(
    () => api.get("/namespaces", {}, { scope: "broker", isQuiet: true }).then((answer) => answer.namespaces, () => []),
    [namespace, round],
  );
  const names = (list ?? []).map((one) => one.name);
  const shown = namespace ?? live.namespace ?? names[0];
  if (!shown) return null;
  const choices = names.includes(shown) ? names : [shown, ...names];
  const choose = (event) => {
    const name = event.target.value;
    location.hash = link("overview", [], {}, name === names[0] ? null : name);
  };
  return html`<label class="namespace"><span>Namespace</span>
    <select value=${shown} onChange=${choose} disabled=${choices.length < 2}>
      ${choices.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
    </select>
  </label>`;
}

function Clock() {
  useTick();
  const { clock, aheadMs } = live;
  if (!clock || (!clock.is_frozen && Math.abs(clock.ahead_ms) < 1000)) return null;
  const at = clock.is_frozen ? clock.now_ms : Date.now() + aheadMs;
  return html`<a class="clock" href=${link("time")}>
    <${Icon} name=${clock.is_frozen ? "snow" : "time"} />
    <span>${clock.is_frozen ? "frozen" : `${duration(Math.abs(clock.ahead_ms))} ${clock.ahead_ms < 0 ? "behind" : "ahead"}`}<br /><${Moment} at=${at} /></span>
  </a>`;
}

function ConnectionState() {
  const { state } = useLive();
  const words = { open: "Live", connecting: "Connecting…", failed: "Not connected" };
  return html`<p class=${`state ${state}`}><span class="dot" aria-hidden="true"></span>${words[state]}</p>`;
}

function Preferences({ isSignedIn, signOut }) {
  const [theme, setTheme] = useTheme();
  const isUtc = useUtc();
  const next = { "": "light", light: "dark", dark: "" }[theme];
  const names = { "": "as the system", light: "light", dark: "dark" };
  return html`<div class="preferences">
    <button class="plain" onClick=${() => setTheme(next)} aria-label=${`Theme: ${names[theme]}; change to ${names[next]}`} title=${`Theme: ${names[theme]}`}>
      <${Icon} name=${{ "": "system", light: "sun", dark: "moon" }[theme]} />
    </button>
    <button class="plain text" aria-pressed=${isUtc} onClick=${() => setUtc(!isUtc)} title=${isUtc ? "Times are in UTC" : "Times are in your zone"}>UTC</button>
    ${isSignedIn && api.token.get() && html`<button class="plain text" onClick=${signOut}>Sign out</button>`}
  </div>`;
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  const search = document.querySelector("main input[type=search]");
  if (search) {
    search.focus();
    event.preventDefault();
  }
});

// The first view waits for the stream. An effect would open it after the first drawing, so it is opened here.
openFor(current().namespace, 0);
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
