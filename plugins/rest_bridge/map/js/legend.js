// What the colours mean, and the choice of what they shall mean.

import { forgetGroups, groupColour, groupOf, isHidden, rampColour, toggleGroup, valueRange } from "./colours.js";
import { byId, make } from "./dom.js";
import { count, quantity } from "./format.js";
import { sourceName } from "./numbers.js";
import { set, state, watch } from "./state.js";

const MOST_ROWS = 12;

export class Legend extends EventTarget {
  #rows = byId("legend-rows");
  #choice = byId("colour-by");
  #buttons = new Map(); // group -> row

  constructor(sources) {
    super();
    this.#choice.addEventListener("change", () => this.#chosen());
    sources.addEventListener("change", () => this.#offer(sources.keys));
    watch(["colour", "depth", "source"], () => this.#offer(sources.keys));
    this.#offer([]);
    this.#rows.addEventListener("click", ({ target }) => {
      const row = target.closest("button");
      if (!row) return;
      toggleGroup(row.dataset.group);
      this.dispatchEvent(new Event("change"));
    });
  }

  #offer(keys) {
    const all = state.source && !keys.includes(state.source) ? [...keys, state.source] : keys;
    const option = (value, text) => make("option", { value }, text);
    this.#choice.replaceChildren(
      make(
        "optgroup",
        { label: "Topic" },
        option("topic:1", "First level"),
        option("topic:2", "Two levels"),
        option("topic:9", "Whole topic"),
      ),
      make("optgroup", { label: "Number in" }, ...all.map((key) => option(`value:${key}`, sourceName(key)))),
    );
    this.#choice.value = state.colour === "topic" ? `topic:${state.depth}` : `value:${state.source}`;
  }

  #chosen() {
    const [kind, ...rest] = this.#choice.value.split(":");
    const detail = rest.join(":");
    forgetGroups();
    if (kind === "topic") set({ colour: "topic", depth: Number(detail) });
    else set({ colour: "value", source: detail });
  }

  /** Show what there is among the events. */
  show(events) {
    if (state.colour === "value") this.#showScale();
    else this.#showGroups(events);
  }

  #showScale() {
    const range = valueRange();
    if (!range) {
      this.#rows.replaceChildren(make("p", { class: "quiet" }, "No such number in view yet."));
      return;
    }
    const stops = [0, 0.25, 0.5, 0.75, 1].map((where) => `${rampColour(where)} ${where * 100}%`);
    const ramp = make("div", { class: "ramp", role: "img", "aria-label": "from low to high" });
    ramp.style.background = `linear-gradient(to right, ${stops.join(",")})`;
    const [low, high] = range;
    this.#rows.replaceChildren(
      ramp,
      make(
        "div",
        { class: "ends" },
        ...[low, (low + high) / 2, high].map((each) => make("span", {}, quantity(each))),
      ),
    );
  }

  #showGroups(events) {
    const counts = new Map();
    for (const event of events) {
      const group = groupOf(event.topic);
      counts.set(group, (counts.get(group) ?? 0) + 1);
    }
    const groups = [...counts.keys()].sort((a, b) => a.localeCompare(b));
    const shown = groups.slice(0, MOST_ROWS);
    // The rows stay the same elements: one that is replaced while it is pressed is not clicked.
    this.#buttons = new Map(shown.map((group) => [group, this.#buttons.get(group) ?? this.#row(group)]));
    for (const [group, row] of this.#buttons) {
      row.setAttribute("aria-pressed", String(!isHidden(group)));
      row.firstChild.style.background = groupColour(group);
      row.lastChild.textContent = count(counts.get(group));
    }
    const rows = [...this.#buttons.values()];
    if (groups.length > MOST_ROWS) rows.push(make("p", { class: "quiet" }, `and ${groups.length - MOST_ROWS} more`));
    if (!groups.length) rows.push(make("p", { class: "quiet" }, "Nothing in view yet."));
    const same = rows.length === this.#rows.children.length && rows.every((row, i) => row === this.#rows.children[i]);
    if (!same) this.#rows.replaceChildren(...rows);
  }

  #row(group) {
    return make(
      "button",
      { type: "button", class: "row", "data-group": group },
      make("span", { class: "dot", "aria-hidden": "true" }),
      make("span", { class: "topic" }, group),
      make("span", { class: "number" }),
    );
  }
}
