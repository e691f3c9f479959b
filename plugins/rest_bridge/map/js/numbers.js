// Numbers in payloads, and where they come from.
//
// A payload is a number ("21.5"), or a JSON object some of whose members are. A source of
// numbers is a topic with its counting levels open and a member: `node/+/temperature`, or
// `vehicle/car/+` with member `speed`; its key is `pattern|member`.

const NUMBER = /^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$/;
const MAX_SOURCES = 200;

/** The numbers of an event by member; "" is a payload that is one itself. */
export function numbersOf(event) {
  if (event.numbers === undefined) event.numbers = read(event);
  return event.numbers;
}

function read(event) {
  if (event.binary || event.payload.length > 10_000) return null;
  if (NUMBER.test(event.payload)) return { "": Number(event.payload) };
  if (!event.payload.trimStart().startsWith("{")) return null;
  try {
    const members = Object.entries(JSON.parse(event.payload));
    const numeric = members.filter(([, value]) => typeof value === "number");
    return numeric.length ? Object.fromEntries(numeric) : null;
  } catch {
    return null;
  }
}

/** A topic with every level that counts something left open. */
export function patternOf(topic) {
  return topic
    .split("/")
    .map((level) => (/\d/.test(level) ? "+" : level))
    .join("/");
}

export const sourceKey = (pattern, member) => `${pattern}|${member}`;

export function sourceParts(key) {
  const cut = key.lastIndexOf("|");
  return { pattern: key.slice(0, cut), member: key.slice(cut + 1) };
}

export function sourceName(key) {
  const { pattern, member } = sourceParts(key);
  return member ? `${pattern} · ${member}` : pattern;
}

/** The number that an event has of a source; undefined if it has none. */
export function numberOf(event, key) {
  const { pattern, member } = sourceParts(key);
  if (patternOf(event.topic) !== pattern) return undefined;
  return numbersOf(event)?.[member];
}

/** Remembers which sources there are. */
export class Sources extends EventTarget {
  #seen = new Set();

  get keys() {
    return [...this.#seen].sort();
  }

  take(events) {
    let grew = false;
    for (const event of events) {
      const numbers = numbersOf(event);
      if (!numbers) continue;
      const pattern = patternOf(event.topic);
      for (const member of Object.keys(numbers)) {
        const key = sourceKey(pattern, member);
        if (this.#seen.has(key) || this.#seen.size >= MAX_SOURCES) continue;
        this.#seen.add(key);
        grew = true;
      }
    }
    if (grew) this.dispatchEvent(new Event("change"));
  }
}
