// How a row of types.json looks to programs on rhea, which both clients for Node are.

import assert from "node:assert/strict";

/** The queue for rows that some library cannot read: they are in a message of their own. */
export const apartOf = (queue) => `${queue}-apart`;

/** Rows of the table that are application properties of these types. */
export const ofTypes = (rows, ...names) =>
  rows.filter((row) => row.section === "application-properties" && names.includes(row.type));

const number = (text, shown) =>
  Buffer.isBuffer(shown) // too large for a number: eight bytes
    ? (text.startsWith("-") ? shown.readBigInt64BE() : shown.readBigUInt64BE()) === BigInt(text)
    : typeof shown === "number" && shown === Number(text);

// .NET counts in ticks of 100 ns, and moments from the year 1. rhea shows described values as such.
const YEAR_1_MS = -62_135_596_800_000n;
const TICKS_PER_MS = 10_000n;
const ticks = (milliseconds) => String(BigInt(milliseconds) * TICKS_PER_MS);
const described = (name, matches) => (text, shown) =>
  String(shown?.descriptor?.value) === name && matches(text, shown.value);

const MATCHES = {
  string: (text, shown) => shown === text,
  symbol: (text, shown) => shown === text,
  // rhea reads the two-octet form, which Python writes, as a number.
  boolean: (text, shown) => [0, 1, false, true].includes(shown) && Boolean(shown) === (text === "true"),
  float: (text, shown) => shown === Number(text),
  double: (text, shown) => shown === Number(text),
  char: (text, shown) => shown === text || shown === text.codePointAt(0),
  timestamp: (text, shown) => new Date(shown).getTime() === Date.parse(text),
  uuid: (text, shown) => Buffer.isBuffer(shown) && shown.toString("hex") === text.replaceAll("-", ""),
  binary: (text, shown) => Buffer.isBuffer(shown) && shown.toString("hex") === text,
  null: (_, shown) => shown === null,
  duration: (text, shown) => shown === milliseconds(text),
  "com.microsoft:timespan": described("com.microsoft:timespan", (text, shown) =>
    number(ticks(milliseconds(text)), shown),
  ),
  "com.microsoft:datetime-offset": described("com.microsoft:datetime-offset", (text, shown) =>
    number(ticks(BigInt(Date.parse(text)) - YEAR_1_MS), shown),
  ),
  "com.microsoft:uri": described("com.microsoft:uri", (text, shown) => shown === text),
  ...Object.fromEntries(
    ["byte", "ubyte", "short", "ushort", "int", "uint", "long", "ulong"].map((one) => [one, number]),
  ),
};

/**
 * Read what a program wrote: one message with the rows it names, and one with those apart, if it names
 * any. `take` gets a message from a queue: its application properties, and as `fields` the properties,
 * annotations, header fields and the body by their names in the table.
 */
export async function readBack(rows, queue, take) {
  const { applicationProperties, fields } = await take(queue);
  const { written, ...own } = applicationProperties;
  const named = rows.filter((row) => written.split(",").includes(row.name));
  compare(named.filter((row) => !row.apart), own, fields);
  const apart = named.filter((row) => row.apart);
  if (apart.length) compare(apart, (await take(apartOf(queue))).applicationProperties, {});
}

/** Make sure that these rows are there, and no application property besides. */
function compare(rows, applicationProperties, fields) {
  const others = { ...applicationProperties };
  for (const row of rows) {
    const inside = row.section === "application-properties";
    const shown = inside ? others[row.name] : fields[row.name];
    if (inside) {
      assert.ok(row.name in others, `${row.name} is lost`);
      delete others[row.name];
    }
    const matches = MATCHES[row.type](row.value, shown);
    assert.ok(matches, `${row.name}: ${row.value} is read as ${show(shown)}`);
  }
  assert.deepEqual(Object.keys(others), [], "nobody wrote these");
}

function milliseconds(text) {
  const [, hours, minutes, seconds] = /^PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?$/.exec(text);
  return 1000 * ((Number(hours ?? 0) * 60 + Number(minutes ?? 0)) * 60 + Number(seconds ?? 0));
}

const show = (value) => (Buffer.isBuffer(value) ? value.toString("hex") : JSON.stringify(value));
