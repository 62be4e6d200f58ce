// Bodies of messages as people read them: JSON, XML, text and hex. A body is only ever shown as text.

import { html, useMemo, useState } from "./vendor/htm-preact.module.js";
import { bytes, number, visible } from "./format.js";
import { Copy, download } from "./widgets.js";

const SHOWN_CHARACTERS = 200_000;
const SHOWN_HEX_BYTES = 16 * 1024;
const INDENTED_MAX = 40;
const FORMS = { json: "JSON", xml: "XML", text: "Text", hex: "Hex" };

export function fromBase64(text) {
  const binary = atob(text ?? "");
  const data = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place += 1) data[place] = binary.charCodeAt(place);
  return data;
}

/** Returns the text of bytes, or null if they are not UTF-8. */
export function decoded(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return null;
  }
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Indents JSON without reading numbers, which JavaScript would round. Beyond a depth nothing is indented further. */
export function indentJson(text) {
  const parts = [];
  let depth = 0;
  let before = "";
  const line = () => `\n${"  ".repeat(Math.min(depth, INDENTED_MAX))}`;
  for (const [part] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gs)) {
    const isEnd = part === "}" || part === "]";
    if (isEnd) depth -= 1;
    const isEmpty = isEnd && (before === "{" || before === "[");
    if ((before === "{" || before === "[" || before === "," || isEnd) && !isEmpty) parts.push(line());
    parts.push(part === ":" ? ": " : part);
    if (part === "{" || part === "[") depth += 1;
    before = part;
  }
  return parts.join("");
}

/** Indents XML by its tags, and changes nothing within them. */
export function indentXml(text) {
  let depth = 0;
  const lines = [];
  for (const [part] of text.matchAll(/<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[^>]*>|[^<]+/gs)) {
    const content = part.trim();
    if (!content) continue;
    if (content.startsWith("</")) depth = Math.max(0, depth - 1);
    const before = lines.at(-1);
    const closes = content.startsWith("</") && before !== undefined && before.isText;
    if (!content.startsWith("<") && before?.isOpening) {
      before.text += content;
      before.isText = true;
    } else if (closes || (content.startsWith("</") && before?.isOpening)) {
      before.text += content;
      before.isText = before.isOpening = false;
    } else lines.push({ text: "  ".repeat(depth) + content, isText: false, isOpening: /^<[^!?/][^>]*[^/]?>$/.test(content) && !content.endsWith("/>") });
    if (/^<[^!?/]/.test(content) && !content.endsWith("/>")) depth += 1;
  }
  return lines.map((one) => one.text).join("\n");
}

export function hexDump(data) {
  const lines = [];
  for (let start = 0; start < data.length; start += 16) {
    const part = [...data.subarray(start, start + 16)];
    const codes = part.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const letters = part.map((one) => (one >= 0x20 && one < 0x7f ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${start.toString(16).padStart(8, "0")}  ${codes.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

function formsOf(data, text, contentType) {
  const forms = [];
  if (text !== null) {
    const start = text.trimStart()[0];
    const type = String(contentType ?? "").toLowerCase();
    if ((type.includes("json") || start === "{" || start === "[") && isJson(text)) forms.push("json");
    if (type.includes("xml") || start === "<") forms.push("xml");
    forms.push("text");
  }
  return [...forms, "hex"];
}

/** The body of a message. `data` are its bytes. */
export function Body({ data, contentType, encoding, section, name }) {
  const text = useMemo(() => decoded(data), [data]);
  const forms = useMemo(() => formsOf(data, text, contentType), [data, text, contentType]);
  const [chosen, setChosen] = useState(null);
  const [isWhole, setWhole] = useState(false);
  const form = forms.includes(chosen) ? chosen : forms[0];
  const written = useMemo(() => {
    if (form === "hex") return hexDump(isWhole ? data : data.subarray(0, SHOWN_HEX_BYTES));
    const whole = form === "json" ? indentJson(text) : form === "xml" ? indentXml(text) : text;
    return visible(isWhole ? whole : whole.slice(0, SHOWN_CHARACTERS));
  }, [data, form, isWhole]);
  const isCut = !isWhole && (form === "hex" ? data.length > SHOWN_HEX_BYTES : data.length > SHOWN_CHARACTERS);
  return html`<section class="panel" aria-label="Body">
    <header><h2>Body</h2>
      <span class="hint">${bytes(data.length)}${contentType ? `, ${visible(contentType)}` : ", no content type"}${encoding ? `, ${visible(encoding)}` : ""}${section ? `, AMQP ${section}` : ""}${text === null ? ", not UTF-8" : ""}</span>
      <div class="end">
        <div class="segments" role="group" aria-label="Show the body as">${forms.map((one) => html`<button key=${one} class="small" aria-pressed=${form === one} onClick=${() => setChosen(one)}>${FORMS[one]}</button>`)}</div>
        ${text !== null && html`<${Copy} text=${text} />`}
        <button class="small" onClick=${() => download(name, data)}>Download</button>
      </div>
    </header>
    ${data.length ? html`<pre class=${`body ${form === "hex" ? "hex" : ""}`} tabindex="0" role="region" aria-label="Content of the body">${written}</pre>` : html`<p class="content hint">The body is empty.</p>`}
    ${isCut && html`<p class="content hint">The first ${form === "hex" ? bytes(SHOWN_HEX_BYTES) : `${number(SHOWN_CHARACTERS)} characters`} are shown. <button class="small" onClick=${() => setWhole(true)}>Show all</button></p>`}
  </section>`;
}
