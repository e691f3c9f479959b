// One line for the user that goes away by itself; screen readers hear it too.

import { byId, make } from "./dom.js";

const SHOWN_MS = 6000;
let timer = 0;

export function toast(text) {
  const box = byId("toast");
  box.replaceChildren(make("span", {}, text));
  box.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => {
    box.hidden = true;
  }, SHOWN_MS);
}
