// What happens now in the part of the world that is shown.
//
// Whenever the map has moved, the stream is opened anew for what is visible, and the log is
// asked for the last minutes there, so that the map is not empty until something happens.

import { findEvents } from "./api.js";
import { boundsToText } from "./shapes.js";
import { state } from "./state.js";
import { Stream } from "./stream.js";

const SETTLE_MS = 150;
const LOOK_BACK_MS = 10 * 60_000;
const LOOK_BACK_EVENTS = 1500;

export class Live extends EventTarget {
  #map;
  #events;
  #stream = new Stream();
  #timer = 0;
  #question = "";
  #asking = null;

  constructor(map, events) {
    super();
    this.#map = map;
    this.#events = events;
    this.#stream.addEventListener("status", () => this.dispatchEvent(new Event("status")));
    this.#stream.addEventListener("events", ({ detail }) => {
      const now = Date.now();
      for (const event of detail) event.arrived = now;
      this.#events.add(detail);
      this.dispatchEvent(new CustomEvent("events", { detail }));
    });
  }

  get status() {
    return this.#stream.status;
  }

  get reason() {
    return this.#stream.reason;
  }

  /** What the stream brings, in words. */
  get following() {
    const { filter, geometry } = JSON.parse(this.#question);
    return geometry ? `${filter} in ${geometry}` : `${filter} everywhere`;
  }

  /** What is asked for: the filter, and what can be seen. */
  question() {
    return { filter: state.filter, geometry: boundsToText(this.#map.getBounds()) };
  }

  /** Follow the map, once it has come to rest. */
  followSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.follow(), SETTLE_MS);
  }

  follow() {
    clearTimeout(this.#timer);
    const question = this.question();
    const text = JSON.stringify(question);
    if (text === this.#question) return;
    this.#question = text;
    this.#stream.open(question);
    this.#lookBack(question);
  }

  async #lookBack(question) {
    this.#asking?.abort();
    const asking = new AbortController();
    this.#asking = asking;
    try {
      const found = await findEvents(
        { ...question, from: Date.now() - LOOK_BACK_MS, size: LOOK_BACK_EVENTS },
        { signal: asking.signal },
      );
      if (this.#asking !== asking) return;
      // What came live meanwhile is newer than what the log had.
      const newer = [...this.#events];
      this.#events.replace([...found, ...newer]);
    } catch (problem) {
      if (problem.name !== "AbortError" && problem.status !== 503) throw problem;
    }
  }

  /** Say that nothing can be had, and why. */
  refuse(reason) {
    this.#stream.refuse(reason);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#asking?.abort();
    this.#asking = null;
    this.#question = "";
    this.#stream.close();
  }
}
