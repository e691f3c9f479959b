// Everything about one event. Topic and payload come from strangers: they are text, only text.

import { colourOf } from "./colours.js";
import { byId, icon, make } from "./dom.js";
import { ago, fullMoment, longPayload, moment } from "./format.js";
import { numbersOf, patternOf, sourceKey } from "./numbers.js";
import { set, state, watch } from "./state.js";

function when({ start, end }) {
  if (start === end) return `${moment(start)}, ${ago(start)}`;
  return `${moment(start)} to ${moment(end)}`;
}

function where({ isPoint, lon, lat, geometry }) {
  const place = `${lat.toFixed(5)}, ${lon.toFixed(5)}`;
  return isPoint ? place : `${geometry.type} round ${place}`;
}

export class Details {
  #box = byId("details");
  #actions;

  /** `actions` are { centre(event), chart(event) }. */
  constructor(actions) {
    this.#actions = actions;
    watch(["selected", "colour", "depth", "source"], () => this.show());
  }

  show() {
    const event = state.selected;
    this.#box.hidden = !event;
    if (!event) return;
    this.#box.replaceChildren(
      make(
        "header",
        {},
        this.#dot(event),
        make("h2", { class: "topic" }, event.topic),
        this.#button("close", "Close", () => set({ selected: null }), true),
      ),
      make("pre", { class: "payload" }, longPayload(event) || "(empty)"),
      make(
        "dl",
        {},
        ...this.#row("When", make("time", { title: fullMoment(event.start) }, when(event))),
        ...this.#row("Where", where(event)),
        ...this.#row("Client", event.client || "the broker"),
        ...this.#row("QoS", `${event.qos}${event.retain ? ", retained" : ""}`),
        ...(event.binary ? this.#row("Payload", "not text: shown as base64") : []),
      ),
      make(
        "div",
        { class: "buttons" },
        this.#button("target", "Centre", () => this.#actions.centre(event)),
        this.#button("filter", "Only this topic", () => set({ filter: event.topic })),
        numbersOf(event) ? this.#button("chart", "Chart", () => this.#actions.chart(event)) : null,
      ),
    );
  }

  #dot(event) {
    const dot = make("span", { class: "dot", "aria-hidden": "true" });
    dot.style.background = colourOf(event);
    return dot;
  }

  #row(term, description) {
    return [make("dt", {}, term), make("dd", {}, description)];
  }

  #button(name, text, click, bare = false) {
    const attributes = { type: "button", class: bare ? "bare" : "chip", on: { click } };
    if (bare) return make("button", { ...attributes, "aria-label": text }, icon(name));
    return make("button", attributes, icon(name), text);
  }
}

/** The source of the first number of an event. */
export function firstSource(event) {
  const [member] = Object.keys(numbersOf(event) ?? {});
  return member === undefined ? null : sourceKey(patternOf(event.topic), member);
}
