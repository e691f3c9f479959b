// What happened before: a span of time out of the log, and a slider to move through it.
//
// A span may hold far more than a page can: then the newest part is here, and the others are
// asked for when the slider comes to them.

import { findEvents } from "./api.js";
import { byId, makeSvg } from "./dom.js";
import { count, fullMoment, moment, span } from "./format.js";
import { boundsToText } from "./shapes.js";
import { state } from "./state.js";

const MOST = 5000; // events of one answer
const BARS = 80;
const STEPS = 1000; // of the slider
const SETTLE_MS = 250;
const PLAY_MS = 25_000; // the whole span, at speed 1

export class History extends EventTarget {
  #map;
  #events;
  #slider = byId("time");
  #range = byId("range");
  #timer = 0;
  #asking = null;
  #frame = 0;
  #known = null; // the part of the span whose events are here
  #counts = []; // events by bar; null where nobody has looked yet
  from = 0;
  to = 0;
  at = 0;

  constructor(map, events) {
    super();
    this.#map = map;
    this.#events = events;
    this.#slider.max = STEPS;
    this.#slider.addEventListener("input", () => {
      this.pause();
      this.#show(this.from + (this.#slider.value / STEPS) * (this.to - this.from));
    });
    this.#range.addEventListener("change", () => this.#choose());
    byId("from").addEventListener("change", () => this.ask());
    byId("to").addEventListener("change", () => this.ask());
    byId("again").addEventListener("click", () => this.ask());
    byId("play").addEventListener("click", () => this.toggle());
  }

  get playing() {
    return this.#frame !== 0;
  }

  #choose() {
    const custom = this.#range.value === "custom";
    byId("custom-range").hidden = !custom;
    if (custom && !byId("from").value) {
      byId("from").value = localInput(this.from);
      byId("to").value = localInput(this.to);
    }
    this.ask();
  }

  #span() {
    if (this.#range.value !== "custom") {
      const now = Date.now();
      return [now - Number(this.#range.value) * 60_000, now];
    }
    return [byId("from"), byId("to")].map((input) => new Date(input.value).getTime());
  }

  question() {
    return { filter: state.filter, geometry: boundsToText(this.#map.getBounds()), from: this.from, to: this.to };
  }

  askSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.ask({ keep: true }), SETTLE_MS);
  }

  /** Ask for the span anew; `keep` stays in it and at the same time, for another view. */
  ask({ keep = false } = {}) {
    clearTimeout(this.#timer);
    if (!keep) {
      this.pause();
      [this.from, this.to] = this.#span();
    }
    if (!(this.from < this.to)) {
      this.#say("The span must end after it begins.");
      return;
    }
    this.#counts = new Array(BARS).fill(null);
    this.#known = null;
    this.#load(keep && this.at ? this.at : this.to, this.from, this.to);
  }

  /** Load events of a part of the span: the newest of it, if there are more than fit. */
  async #load(at, from, to) {
    this.#asking?.abort();
    const asking = new AbortController();
    this.#asking = asking;
    this.#say("Asking the log …");
    try {
      const found = await findEvents({ ...this.question(), from, to, size: MOST }, { signal: asking.signal });
      if (this.#asking !== asking) return;
      this.#asking = null;
      const known = found.length === MOST ? found[0].start : from;
      if (known > at && to > at + 1) this.#load(at, this.#windowStart(at), at + 1);
      else this.#take(found, known, to, at);
    } catch (problem) {
      if (problem.name === "AbortError") return;
      this.#asking = null;
      this.#known = [from, to]; // asking again at once would bring the same answer
      this.#events.clear();
      this.#say(problem.message);
    }
  }

  #take(found, from, to, at) {
    this.#known = [from, to];
    this.#events.replace(found);
    this.#countBars(found);
    const what = found.length === 1 ? "1 event" : `${count(found.length)} events`;
    const part = from > this.from || to < this.to ? `, ${moment(from)} to ${moment(to)}; more as you move` : "";
    this.#say(`${what} in view${part}`);
    this.#show(at);
    this.dispatchEvent(new Event("loaded"));
  }

  /** Load what the slider points at, unless it is here or on its way. */
  #loadIfNeeded() {
    if (!this.#known || this.#asking) return;
    const start = this.#windowStart(this.at);
    const [from, to] = this.#known;
    const missing = this.at > to || this.at < from || (start < from && this.at - from < (this.at - start) / 4);
    if (missing) this.#load(this.at, start, Math.min(this.to, this.at + (this.at - start) / 2));
  }

  #say(text) {
    byId("history-note").textContent = text;
  }

  /** Count the events of what is known; the rest of the bars stays as it was. */
  #countBars(events) {
    const width = (this.to - this.from) / BARS;
    const [from, to] = this.#known;
    const fresh = new Array(BARS).fill(0);
    for (const event of events) {
      const index = Math.floor((event.start - this.from) / width);
      if (index >= 0 && index < BARS) fresh[index] += 1;
    }
    for (const [index, number] of fresh.entries()) {
      const whole = this.from + index * width >= from && this.from + (index + 1) * width <= to;
      if (whole || number > (this.#counts[index] ?? 0)) this.#counts[index] = number;
    }
    const most = Math.max(...this.#counts, 1);
    const bars = this.#counts.map((number, index) => {
      const height = number === null ? 0.06 : number / most;
      const kind = number === null ? "unknown" : "known";
      return makeSvg("rect", { x: index + 0.1, width: 0.8, y: 1 - height, height, class: kind });
    });
    byId("bars").replaceChildren(
      makeSvg("svg", { viewBox: `0 0 ${BARS} 1`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars),
    );
  }

  #show(at) {
    this.at = Math.min(Math.max(at, this.from), this.to);
    this.#slider.value = Math.round(((this.at - this.from) / (this.to - this.from)) * STEPS);
    const text = moment(this.at);
    byId("at").textContent = text;
    byId("at").dateTime = fullMoment(this.at);
    this.#slider.setAttribute("aria-valuetext", text);
    this.dispatchEvent(new Event("time"));
    this.#loadIfNeeded();
  }

  #windowStart(at) {
    return Math.max(this.from, at - Math.max(60_000, (this.to - this.from) / 40));
  }

  /** The window of time that is drawn: what is old by then has gone. */
  get window() {
    return [this.#windowStart(this.at), this.at];
  }

  toggle() {
    if (this.playing) this.pause();
    else this.#play();
  }

  #play() {
    if (!(this.from < this.to)) return;
    if (this.at >= this.to) this.#show(this.from);
    let before = performance.now();
    const step = (now) => {
      const speed = Number(byId("speed").value);
      this.#show(this.at + ((now - before) / PLAY_MS) * speed * (this.to - this.from));
      before = now;
      if (this.at >= this.to) this.pause();
      else this.#frame = requestAnimationFrame(step);
    };
    this.#frame = requestAnimationFrame(step);
    this.#dressButton();
  }

  pause() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#dressButton();
  }

  #dressButton() {
    const button = byId("play");
    button.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    button.querySelector("use").setAttribute("href", this.playing ? "#icon-pause" : "#icon-play");
  }

  stop() {
    clearTimeout(this.#timer);
    this.#asking?.abort();
    this.#asking = null;
    this.#known = null;
    this.pause();
  }

  get spanText() {
    return span(this.to - this.from);
  }
}

function localInput(ms) {
  const local = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19);
}
