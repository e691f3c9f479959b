// The panel's tabs, as the ARIA practices have them: arrows move, Home and End jump.

import { byId } from "./dom.js";

export class Tabs extends EventTarget {
  #tabs = [...byId("tabs").querySelectorAll("[role=tab]")];

  constructor() {
    super();
    byId("tabs").addEventListener("click", ({ target }) => {
      const tab = target.closest("[role=tab]");
      if (!tab) return;
      const again = tab.getAttribute("aria-selected") === "true";
      // On a phone the panel is folded away, and the open tab folds it again.
      byId("panel").classList.toggle("open", !again || !byId("panel").classList.contains("open"));
      this.select(tab.dataset.tab);
    });
    byId("tabs").addEventListener("keydown", (event) => this.#key(event));
  }

  get selected() {
    return this.#tabs.find((tab) => tab.getAttribute("aria-selected") === "true").dataset.tab;
  }

  select(name) {
    for (const tab of this.#tabs) {
      const chosen = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      byId(`panel-${tab.dataset.tab}`).hidden = !chosen;
    }
    this.dispatchEvent(new Event("change"));
  }

  /** Select a tab and unfold the panel. */
  open(name) {
    byId("panel").classList.add("open");
    this.select(name);
  }

  #key(event) {
    const here = this.#tabs.indexOf(document.activeElement);
    const last = this.#tabs.length - 1;
    const next = {
      ArrowRight: here === last ? 0 : here + 1,
      ArrowLeft: here === 0 ? last : here - 1,
      Home: 0,
      End: last,
    }[event.key];
    if (here < 0 || next === undefined) return;
    event.preventDefault();
    this.select(this.#tabs[next].dataset.tab);
    this.#tabs[next].focus();
  }
}
