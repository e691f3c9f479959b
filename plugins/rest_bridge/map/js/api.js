// The REST interface, as the page uses it: addresses, questions, and answers as events.

import { anchorOf } from "./shapes.js";
import { filterPath } from "./topics.js";

/** An answer that says what is wrong (RFC 9457), or no answer at all (status 0). */
export class Problem extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

let hasLog = true;

/** Tell whether there is a log: without one nobody needs to ask it. */
export function setLog(present) {
  hasLog = present;
}

/** An address beside this page, without the credentials that the page's own may carry. */
export function beside(path) {
  const here = new URL("./", location.href);
  here.username = here.password = "";
  return new URL(path, here);
}

/** The address of events: filter, geometry, from, to (Unix ms), size, order. */
export function eventsUrl({ filter, geometry = null, from = null, to = null, size = null, order = null }) {
  const url = beside(`rest/geopublish/${filterPath(filter)}`);
  const pairs = [];
  // Whatever can be seen counts, also a line or an area that is only partly inside.
  if (geometry) pairs.push(["geometry", geometry], ["relation", "intersects"]);
  if (from !== null) pairs.push(["from", new Date(from).toISOString()]);
  if (to !== null) pairs.push(["to", new Date(to).toISOString()]);
  if (size !== null) pairs.push(["size", size]);
  if (order !== null) pairs.push(["order", order]);
  // Brackets and commas may stand in a query as they are, and people will read this.
  const plain = (text) => encodeURIComponent(text).replace(/%(2C|28|29|3A|2F)/g, decodeURIComponent);
  url.search = pairs.map(([name, value]) => `${name}=${plain(String(value))}`).join("&");
  return url;
}

export async function getJson(url, { signal } = {}) {
  let answer;
  try {
    answer = await fetch(url, { signal, headers: { Accept: "application/geo+json, application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The broker does not answer.");
  }
  if (answer.ok) return answer.json();
  let detail = answer.statusText;
  try {
    const problem = await answer.json();
    detail = problem.parameter ? `${problem.parameter}: ${problem.detail}` : problem.detail;
  } catch {
    // Not a problem document: the status line has to do.
  }
  throw new Problem(detail || `status ${answer.status}`, answer.status);
}

/** Ask the log; the newest events come, in the order in which they happened. */
export async function findEvents(question, options) {
  if (!hasLog) throw new Problem("The event log is off: there is no history.", 503);
  const answer = await getJson(eventsUrl({ ...question, order: "newest" }), options);
  // The sort is stable: what happened in the same millisecond stays in the order of receipt.
  return answer.features.map(readFeature).reverse().sort((a, b) => a.start - b.start);
}

/** Topics of the log; none if there is no log. */
export async function findTopics(limit) {
  return hasLog ? getJson(beside(`rest/topics/%23?size=${limit}`)) : [];
}

export async function getFeatures(path, options) {
  return (await getJson(beside(path), options)).features;
}

/** A GeoJSON feature as an event of this page. */
export function readFeature(feature) {
  const { topic, client, qos, retain, time, received, payload, payload_base64 } = feature.properties;
  const [start, end] = readTime(time);
  return {
    id: feature.id ?? "",
    topic,
    client,
    qos,
    retain,
    start: Number.isFinite(start) ? start : Date.parse(received),
    end,
    received: Date.parse(received),
    payload: payload ?? payload_base64 ?? "",
    binary: payload_base64 !== undefined,
    geometry: feature.geometry,
    isPoint: feature.geometry.type === "Point",
    ...anchorOf(feature.geometry),
  };
}

function readTime(text) {
  const [start, end = start] = text.split("/");
  const instant = (part, open) => (part === ".." ? open : Date.parse(part));
  return [instant(start, -Infinity), instant(end, Infinity)];
}
