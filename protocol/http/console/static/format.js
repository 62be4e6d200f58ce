// Texts for people: numbers, sizes, times, durations, and texts of messages made safe to look at.

const NUMBER = new Intl.NumberFormat();
const RATE = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const UNITS = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
];

export const number = (value) => NUMBER.format(value);
export const rate = (value) => (value >= 100 ? NUMBER.format(Math.round(value)) : RATE.format(value));
export const plural = (count, noun, nouns = `${noun}s`) => `${number(count)} ${count === 1 ? noun : nouns}`;

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  if (size < 1024 * 1024) return `${RATE.format(size / 1024)} KiB`;
  return `${RATE.format(size / 1024 / 1024)} MiB`;
}

/** Returns a duration such as `3 min 5 s`: its two largest units. */
export function duration(milliseconds) {
  if (milliseconds < 1000) return `${Math.max(0, Math.round(milliseconds))} ms`;
  let seconds = Math.floor(milliseconds / 1000);
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(seconds / size);
    if (count || parts.length) parts.push(count ? `${number(count)} ${unit}` : "");
    seconds -= count * size;
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ");
}

/** Reads an ISO 8601 duration such as PT1M30S. Returns milliseconds, or null. */
export function isoDuration(text) {
  const match = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$/.exec(text ?? "");
  if (!match) return null;
  const [days, hours, minutes, seconds] = match.slice(1).map((part) => Number(part ?? 0));
  return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000;
}

const zoned = new Map();
function formatter(isUtc, isShort) {
  const key = `${isUtc} ${isShort}`;
  if (!zoned.has(key)) {
    const timeZone = isUtc ? "UTC" : undefined;
    const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZone };
    const date = { year: "numeric", month: "2-digit", day: "2-digit" };
    zoned.set(key, new Intl.DateTimeFormat("sv-SE", isShort ? clock : { ...date, ...clock }));
  }
  return zoned.get(key);
}

export const timeZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Returns a moment as text: the time if it is today, or else the date and the time. */
export function moment(milliseconds, isUtc, isLong = false) {
  const isToday = formatter(isUtc, false).format(milliseconds).slice(0, 10) === formatter(isUtc, false).format(Date.now()).slice(0, 10);
  return formatter(isUtc, isToday && !isLong).format(milliseconds) + (isUtc ? " UTC" : "");
}

const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u0080-\u009f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** Makes characters visible that are not, such as control characters, or that change the order of others. */
export function visible(text) {
  return String(text).replace(HIDDEN, (character) => {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x7f ? "\u2421" : `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

/** The same in one line. */
export const oneLine = (text) => visible(text).replace(/\s+/g, " ");

export function shown(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? visible(JSON.stringify(value)) : visible(value);
}
