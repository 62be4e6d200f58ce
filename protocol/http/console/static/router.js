// Addresses of the pages. Everything is after the `#`, so the broker serves one page for all of them:
// #/overview, #/entity/orders?sub_queue=dead_letter, and #/~team-b/overview for another namespace.

import { useEffect, useState } from "./vendor/htm-preact.module.js";

function parse(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?");
  const segments = path.split("/").filter(Boolean).map(decode);
  const namespace = segments[0]?.startsWith("~") ? segments.shift().slice(1) : null;
  const [page = "overview", ...rest] = segments;
  return { namespace, page, rest, query: Object.fromEntries(new URLSearchParams(search)) };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export const current = () => parse(location.hash);

/** Returns the address of a page. `rest` are the segments after its name. */
export function link(page, rest = [], query = {}, namespace = current().namespace) {
  const segments = [...(namespace === null ? [] : [`~${namespace}`]), page, ...rest];
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(given).toString();
  return `#/${segments.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(...where) {
  location.hash = link(...where);
}

/** Changes the query of this page without a new entry in the history of the browser. */
export function replaceQuery(query) {
  const { namespace, page, rest } = current();
  history.replaceState(null, "", link(page, rest, query, namespace));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute() {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    const update = () => setRoute(current());
    window.addEventListener("hashchange", update);
    return () => window.removeEventListener("hashchange", update);
  }, []);
  return route;
}
