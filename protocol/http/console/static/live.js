// The overview of the namespace, kept up to date by one stream that all pages share.

import { useEffect, useState } from "./vendor/htm-preact.module.js";
import { stream } from "./api.js";

const KEPT_MS = 5 * 60 * 1000;

export const live = {
  /** `connecting`, `open` or `failed`. */
  state: "connecting",
  error: null,
  hasData: false,
  rows: new Map(),
  alerts: [],
  connections: 0,
  namespace: null,
  clock: null,
  /** What to add to the clock of this machine to get that of the namespace. */
  aheadMs: 0,
  /** Rates of the namespace: [real time in ms, in, out]. */
  total: [],
  /** Rates by path, in the same form; only moments at which there was something. */
  rates: new Map(),
  version: 0,
};

const watchers = new Set();
let close = null;
let isPlanned = false;

function changed() {
  live.version += 1;
  if (isPlanned) return;
  isPlanned = true;
  // Not with every event: a page draws as often as the screen does, and a hidden page not at all.
  requestAnimationFrame(() => {
    isPlanned = false;
    for (const watcher of [...watchers]) watcher(live.version);
  });
}

function apply(data, name) {
  if (name === "dropped") {
    open(); // events are missing, so begin again
    return;
  }
  if (data.is_first) {
    live.rows = new Map();
    live.total = [];
    live.rates = new Map();
  }
  for (const row of data.entities) live.rows.set(row.path, row);
  for (const path of data.removed) {
    live.rows.delete(path);
    live.rates.delete(path);
  }
  for (const sample of data.rates) addRates(sample);
  live.alerts = data.alerts;
  live.connections = data.connections;
  live.clock = data.clock;
  live.namespace = data.namespace;
  live.aheadMs = data.clock.now_ms - Date.now();
  live.hasData = true;
  changed();
}

function addRates({ at_ms: at, entities }) {
  let incoming = 0;
  let outgoing = 0;
  for (const [path, [arrived, delivered]] of Object.entries(entities)) {
    // What a topic delivers arrives at its subscriptions, and would count twice.
    if (live.rows.get(path)?.kind !== "subscription") incoming += arrived;
    outgoing += delivered;
    const kept = live.rates.get(path) ?? [];
    kept.push([at, arrived, delivered]);
    while (kept[0][0] < at - KEPT_MS) kept.shift();
    live.rates.set(path, kept);
  }
  live.total.push([at, incoming, outgoing]);
  while (live.total[0][0] < at - KEPT_MS) live.total.shift();
}

/** Begins to read the overview of the present namespace. */
export function open() {
  close?.();
  live.state = "connecting";
  live.error = null;
  live.hasData = false;
  live.rows = new Map();
  live.alerts = [];
  close = stream("/overview/stream", {}, {
    event: apply,
    open: () => {
      live.state = "open";
      live.error = null;
      changed();
    },
    failed: (error) => {
      live.state = "failed";
      live.error = error;
      changed();
    },
  });
  changed();
}

/** Draws the component again whenever the overview changes. */
export function useLive() {
  const [, setVersion] = useState(live.version);
  useEffect(() => {
    watchers.add(setVersion);
    return () => watchers.delete(setVersion);
  }, []);
  return live;
}

/** Draws the component again only when the row of this entity changes, and returns the row. */
export function useRow(path) {
  const [row, setRow] = useState(live.rows.get(path));
  useEffect(() => {
    const update = () => setRow(live.rows.get(path));
    update();
    watchers.add(update);
    return () => watchers.delete(update);
  }, [path]);
  return row;
}

/** The time of the namespace now, in ms. A frozen clock stands still. */
export function now() {
  if (live.clock?.is_frozen) return live.clock.now_ms;
  return Date.now() + live.aheadMs;
}
