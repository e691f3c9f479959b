// Numbers, times and payloads as a person reads them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const dayAndClock = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const DAY_MS = 86_400_000;

export const count = (number) => whole.format(number);

/** A number with as many digits as its size deserves. */
export function quantity(number) {
  if (!Number.isFinite(number)) return String(number);
  const size = Math.abs(number);
  if (size !== 0 && (size < 0.001 || size >= 1e7)) return number.toExponential(2);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return String(Number(number.toFixed(digits)));
}

export function metres(number) {
  return number < 1000 ? `${whole.format(number)} m` : `${quantity(number / 1000)} km`;
}

/** The time of day; with the date when it was not today. */
export function moment(ms) {
  if (!Number.isFinite(ms)) return "always";
  const today = new Date().toDateString() === new Date(ms).toDateString();
  return (today ? clock : dayAndClock).format(ms);
}

export const fullMoment = (ms) => (Number.isFinite(ms) ? new Date(ms).toISOString() : "always");

export function span(ms) {
  const seconds = Math.round(ms / 1000);
  if (seconds < 90) return `${seconds} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (ms < 2 * DAY_MS) return `${quantity(seconds / 3600)} h`;
  return `${quantity(ms / DAY_MS)} days`;
}

/** A payload on one line. */
export function shortPayload(event) {
  const text = event.binary ? `${event.payload.length} bytes (base64)` : event.payload;
  const line = text.replace(/\s+/g, " ");
  return line.length > 80 ? `${line.slice(0, 79)}…` : line;
}

/** A payload in full: JSON indented, everything else as it came. */
export function longPayload(event) {
  if (!event.binary && /^\s*[[{]/.test(event.payload)) {
    try {
      return JSON.stringify(JSON.parse(event.payload), null, 2);
    } catch {
      return event.payload;
    }
  }
  return event.payload;
}

/** How long ago, coarsely. */
export function ago(ms, now = Date.now()) {
  const passed = now - ms;
  return passed < 2000 ? "now" : `${span(passed)} ago`;
}
