// A numeric topic over time: what the log has of it in view, and what happens now.

import { findEvents } from "./api.js";
import { Chart } from "./chart.js";
import { byId, make } from "./dom.js";
import { Events } from "./events.js";
import { quantity } from "./format.js";
import { numberOf, sourceName, sourceParts } from "./numbers.js";
import { shapeToText } from "./shapes.js";
import { set, state, watch } from "./state.js";

const LIVE_SPAN_MS = 5 * 60_000;
const MOST = 3000;
const MOST_SERIES = 30;
const LISTED = 8;
const COLOURS = ["#2f7ed8", "#e8743b", "#19a979", "#b55ac4", "#c9a227", "#13a4b4", "#ed4a7b", "#7a5af8"];

export class ChartPanel {
  #question; // () => what is asked for now: filter, geometry and perhaps a span
  #store = new Events();
  #chart;
  #choice = byId("chart-source");
  #pick;
  #asking = null;
  #scheduled = 0;

  constructor(sources, question, pick) {
    this.#question = question;
    this.#pick = pick;
    this.#chart = new Chart(byId("chart"), (topic) => this.#pickTopic(topic));
    this.#choice.addEventListener("change", () => set({ source: this.#choice.value || null }));
    sources.addEventListener("change", () => this.#offer(sources.keys));
    watch(["source"], () => {
      this.#offer(sources.keys);
      this.ask();
    });
    watch(["shape", "mode"], () => this.ask());
    this.#offer([]);
  }

  get #shown() {
    return !byId("panel-chart").hidden && state.source;
  }

  #offer(keys) {
    const all = state.source && !keys.includes(state.source) ? [...keys, state.source] : keys;
    this.#choice.replaceChildren(
      make("option", { value: "" }, all.length ? "Choose a number …" : "No numbers in view yet"),
      ...all.map((key) => make("option", { value: key }, sourceName(key))),
    );
    this.#choice.value = state.source ?? "";
  }

  #pickTopic(topic) {
    const event = [...this.#store].findLast((each) => each.topic === topic);
    if (event) this.#pick(event);
  }

  /** Ask the log anew: for another number, place or span. */
  async ask() {
    this.#asking?.abort();
    this.#store.clear();
    this.#drawSoon();
    if (!this.#shown) return;
    const asking = new AbortController();
    this.#asking = asking;
    const { from, to, geometry } = this.#question();
    const question = {
      filter: sourceParts(state.source).pattern,
      geometry: state.shape ? shapeToText(state.shape) : geometry,
      from: from ?? Date.now() - LIVE_SPAN_MS,
      to: to ?? null,
      size: MOST,
    };
    try {
      const found = await findEvents(question, { signal: asking.signal });
      if (this.#asking !== asking) return;
      this.#store.replace([...found, ...this.#store]);
      this.#drawSoon();
    } catch (problem) {
      if (problem.name !== "AbortError" && problem.status !== 503) {
        byId("chart-note").textContent = problem.message;
      }
    }
  }

  /** Take what happens now. */
  take(events) {
    if (!this.#shown || state.shape) return;
    const fresh = events.filter((event) => numberOf(event, state.source) !== undefined);
    if (!fresh.length) return;
    this.#store.add(fresh);
    this.#drawSoon();
  }

  #drawSoon() {
    if (this.#scheduled) return;
    this.#scheduled = requestAnimationFrame(() => {
      this.#scheduled = 0;
      this.#draw();
    });
  }

  #draw() {
    const series = new Map();
    const { from, to } = this.#question();
    const end = to ?? Date.now();
    const start = from ?? end - LIVE_SPAN_MS;
    for (const event of this.#store) {
      const number = state.source ? numberOf(event, state.source) : undefined;
      if (number === undefined || event.start < start) continue;
      const points = series.get(event.topic) ?? [];
      points.push([event.start, number]);
      series.set(event.topic, points);
    }
    const names = [...series.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const lines = names.slice(0, MOST_SERIES).map((name, index) => ({
      name,
      colour: COLOURS[index % COLOURS.length],
      points: series.get(name),
    }));
    const first = Math.min(...lines.map(({ points }) => points[0][0]));
    this.#chart.show(lines, from ? start : Math.max(start, Math.min(first, end - 30_000)), end);
    this.#table(lines, names.length);
  }

  #table(lines, number) {
    const note = byId("chart-note");
    if (!state.source) note.textContent = "Choose a number, or click an event and then Chart.";
    else if (!lines.length) note.textContent = "Nothing of this in view yet.";
    else if (number > LISTED) note.textContent = `${number} series; point at a line to read it.`;
    else note.textContent = "";
    byId("chart-series").replaceChildren(
      ...lines.slice(0, LISTED).map(({ name, colour, points }) => {
        const values = points.map(([, value]) => value);
        const dot = make("span", { class: "dot", "aria-hidden": "true" });
        dot.style.background = colour;
        return make(
          "li",
          {},
          dot,
          make("span", { class: "topic" }, name),
          make("strong", {}, quantity(values.at(-1))),
          make("span", { class: "quiet" }, `${quantity(Math.min(...values))} – ${quantity(Math.max(...values))}`),
        );
      }),
    );
  }

  /** The panel has come into view, or the map has moved. */
  refresh() {
    if (this.#shown) this.ask();
  }
}
