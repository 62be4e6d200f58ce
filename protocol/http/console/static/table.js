// A table that draws only the rows that can be seen, so that a hundred thousand rows scroll as ten do.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.module.js";

const BEYOND = 12;

/**
 * `columns` are {id, label, cell(row), className, sort, title}. `rows` are any objects, `keyOf` names them. `onEnd` is
 * called when the last rows come into view. `selection` is {has, toggle, all, isAll} or nothing. `open(row)` is called
 * with Enter.
 */
export function Table({ label, columns, rows, keyOf, rowClass, onEnd, selection, open, sort, setSort, total, empty }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [rowHeight, setRowHeight] = useState(34);
  const [active, setActive] = useState(-1);

  useLayoutEffect(() => {
    const element = box.current;
    const measure = () => setView((before) => (before.height === element.clientHeight ? before : { ...before, height: element.clientHeight }));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const drawn = box.current.querySelector("tbody tr[data-row]");
    const height = drawn?.getBoundingClientRect().height;
    if (height && Math.abs(height - rowHeight) > 0.5) setRowHeight(height);
  });

  const first = Math.max(0, Math.floor(view.top / rowHeight) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + BEYOND);

  useEffect(() => {
    if (onEnd && last >= rows.length - BEYOND) onEnd();
  }, [last, rows.length, onEnd]);

  function onScroll(event) {
    const top = event.currentTarget.scrollTop;
    setView((before) => ({ ...before, top }));
  }

  function move(place) {
    const next = Math.max(0, Math.min(rows.length - 1, place));
    setActive(next);
    const element = box.current;
    const head = element.querySelector("thead").offsetHeight;
    const top = next * rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight + head > element.scrollTop + element.clientHeight) element.scrollTop = top + rowHeight + head - element.clientHeight;
  }

  function onKeyDown(event) {
    if (event.target !== box.current) return;
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 2);
    const steps = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: rows.length - 1 };
    if (event.key in steps) move(steps[event.key]);
    else if (event.key === "Enter" && rows[active]) open?.(rows[active]);
    else if (event.key === " " && rows[active] && selection) selection.toggle(rows[active]);
    else return;
    event.preventDefault();
  }

  const headings = columns.map((column) => {
    const direction = sort?.id === column.id ? (sort.isDown ? "descending" : "ascending") : undefined;
    const content = column.sort
      ? html`<button class="plain sort" onClick=${() => setSort({ id: column.id, isDown: sort?.id === column.id ? !sort.isDown : column.sort === "down" })}>${column.label}<span aria-hidden="true">${direction ? (sort.isDown ? " ↓" : " ↑") : ""}</span></button>`
      : column.label;
    return html`<th key=${column.id} scope="col" class=${column.className ?? ""} aria-sort=${direction} title=${column.title}>${content}</th>`;
  });

  return html`<div class="table" ref=${box} tabindex="0" role="region" aria-label=${`${label}; arrow keys move, Enter opens`} onScroll=${onScroll} onKeyDown=${onKeyDown}>
    <table aria-rowcount=${(total ?? rows.length) + 1} aria-label=${label}>
      <thead><tr aria-rowindex="1">
        ${selection && html`<th scope="col" class="choose"><input type="checkbox" aria-label="Select all rows that are loaded" checked=${selection.isAll} onChange=${selection.all} /></th>`}
        ${headings}
      </tr></thead>
      <tbody>
        ${first > 0 && html`<tr key="above" class="space" aria-hidden="true" style=${{ height: `${first * rowHeight}px` }}><td></td></tr>`}
        ${rows.slice(first, last).map((row, place) => html`<tr key=${keyOf(row)} data-row=${keyOf(row)} aria-rowindex=${first + place + 2}
            class=${`${rowClass?.(row) ?? ""} ${first + place === active ? "active" : ""} ${selection?.has(row) ? "chosen" : ""}`}>
          ${selection && html`<td class="choose"><input type="checkbox" aria-label=${`Select ${keyOf(row)}`} checked=${selection.has(row)} onChange=${() => selection.toggle(row)} /></td>`}
          ${columns.map((column) => html`<td key=${column.id} class=${column.className ?? ""}>${column.cell(row)}</td>`)}
        </tr>`)}
        ${last < rows.length && html`<tr key="below" class="space" aria-hidden="true" style=${{ height: `${(rows.length - last) * rowHeight}px` }}><td></td></tr>`}
      </tbody>
    </table>
    ${!rows.length && empty}
  </div>`;
}
