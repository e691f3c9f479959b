// What happens inside the shape that was drawn: the broker filters, this counts and lists.

import { findEvents } from "./api.js";
import { byId } from "./dom.js";
import { count, metres, quantity } from "./format.js";
import { EventList } from "./event_list.js";
import { shapeToText } from "./shapes.js";
import { set, state, watch } from "./state.js";
import { Stream } from "./stream.js";

const LISTED = 100;
const RATE_MS = 10_000;

export class Watching {
  #map;
  #history;
  #stream = new Stream();
  #list;
  #events = []; // newest first
  #arrivals = [];
  #total = 0;
  #layer = null;
  #asking = null;

  constructor(map, history, pick) {
    this.#map = map;
    this.#history = history;
    this.#list = new EventList(byId("watch-list"), pick);
    this.#stream.addEventListener("events", ({ detail }) => this.#take(detail));
    this.#stream.addEventListener("status", () => this.#tell());
    history.addEventListener("loaded", () => state.shape && this.#ask());
    watch(["shape"], () => this.#draw());
    watch(["shape", "filter", "mode"], () => this.restart());
    byId("watch-clear").addEventListener("click", () => set({ shape: null }));
    setInterval(() => state.shape && this.#tell(), 1000);
    this.#draw();
  }

  #draw() {
    this.#layer?.remove();
    this.#layer = null;
    const { shape } = state;
    byId("watch-empty").hidden = Boolean(shape);
    byId("watch-shape").hidden = !shape;
    if (!shape) return;
    const style = { className: "watched", pane: "shape", interactive: false };
    this.#layer =
      shape.kind === "circle"
        ? L.circle([shape.centre.lat, shape.centre.lon], { ...style, radius: shape.metres })
        : L.polygon(shape.points.map(({ lat, lon }) => [lat, lon]), style);
    this.#layer.addTo(this.#map);
    byId("watch-name").textContent =
      shape.kind === "circle" ? `Circle of ${metres(shape.metres)}` : `Polygon of ${shape.points.length} corners`;
  }

  /** Begin from nothing, for another shape or another filter. */
  restart() {
    this.#stream.close();
    this.#asking?.abort();
    this.#events = [];
    this.#arrivals = [];
    this.#total = 0;
    if (state.shape && state.mode === "live") {
      this.#stream.open({ filter: state.filter, geometry: shapeToText(state.shape) });
    }
    if (state.shape && state.mode === "history") this.#ask();
    this.#tell();
    this.#list.show([]);
  }

  async #ask() {
    const { from, to } = this.#history;
    if (!(from < to)) return; // the span is not known yet: "loaded" will follow
    this.#asking?.abort();
    const asking = new AbortController();
    this.#asking = asking;
    try {
      const geometry = shapeToText(state.shape);
      const found = await findEvents({ filter: state.filter, geometry, from, to, size: 1000 }, asking);
      if (this.#asking !== asking) return;
      this.#events = found.reverse().slice(0, LISTED);
      this.#total = found.length;
      this.#tell();
      this.#list.show(this.#events);
    } catch (problem) {
      if (problem.name !== "AbortError") this.#say("", problem.message);
    }
  }

  #take(events) {
    const now = Date.now();
    this.#total = this.#stream.arrived;
    this.#arrivals.push(...events.map(() => now));
    this.#events = [...events.toReversed(), ...this.#events].slice(0, LISTED);
    this.#tell();
    this.#list.show(this.#events);
  }

  #tell() {
    const now = Date.now();
    this.#arrivals = this.#arrivals.filter((each) => now - each < RATE_MS);
    byId("watch-count").dataset.status = this.#stream.status;
    if (this.#stream.status === "refused") {
      this.#say("", this.#stream.reason);
      return;
    }
    const inside = state.mode === "live" ? "since you drew it" : `in these ${this.#history.spanText}`;
    const rate = state.mode === "live" ? `, ${quantity(this.#arrivals.length / (RATE_MS / 1000))} a second` : "";
    this.#say(count(this.#total), `${this.#total === 1 ? "event" : "events"} inside ${inside}${rate}`);
  }

  #say(total, text) {
    byId("watch-total").textContent = total;
    byId("watch-text").textContent = text;
  }
}
