// A list of events, newest first; a click or Enter shows one on the map.

import { colourOf } from "./colours.js";
import { make } from "./dom.js";
import { moment, shortPayload } from "./format.js";

/** Fill a list with events. A row stays the same element while its event is in it. */
export class EventList {
  #box;
  #rows = new Map(); // event -> row

  constructor(box, pick) {
    this.#box = box;
    this.#box.addEventListener("click", ({ target }) => {
      const row = target.closest("li");
      const event = [...this.#rows].find(([, each]) => each === row)?.[0];
      if (event) pick(event);
    });
  }

  show(events) {
    // Rows that run away under the pointer or the keyboard cannot be picked.
    if (this.#rows.size && this.#box.matches(":focus-within, :hover")) return;
    const rows = new Map(events.map((event) => [event, this.#rows.get(event) ?? this.#row(event)]));
    this.#rows = rows;
    for (const [event, row] of rows) row.firstChild.firstChild.style.background = colourOf(event);
    this.#box.replaceChildren(...rows.values());
  }

  #row(event) {
    return make(
      "li",
      {},
      make(
        "button",
        { type: "button", class: "row" },
        make("span", { class: "dot", "aria-hidden": "true" }),
        make("span", { class: "topic" }, event.topic),
        make("time", { datetime: new Date(event.start).toISOString() }, moment(event.start)),
        make("span", { class: "payload" }, shortPayload(event)),
      ),
    );
  }
}
