// What the page is about, in one place: who changes it calls set(), who depends on it watches.
//
//   filter     topic filter                        mode      "live" or "history"
//   colour     "topic" or "value"                  depth     topic levels that make a colour
//   source     key of the numbers to colour/chart  shape     what was drawn, or null
//   selected   the event whose details are shown   view      { zoom, lat, lon }
//
// What is worth sharing also stands in the address, so that a link shows the same thing.

import { shapeFromText, shapeToText } from "./shapes.js";

const DEFAULTS = {
  filter: "#",
  mode: "live",
  colour: "topic",
  depth: 1,
  source: null,
  shape: null,
  selected: null,
  view: null,
};

const watchers = [];
export const state = { ...DEFAULTS };

/** Call `watcher` whenever one of the names changes, after all of a set() are in place. */
export function watch(names, watcher) {
  watchers.push({ names: new Set(names), watcher });
}

export function set(changes) {
  const changed = Object.keys(changes).filter((name) => state[name] !== changes[name]);
  if (!changed.length) return;
  Object.assign(state, changes);
  writeAddress();
  for (const { names, watcher } of watchers) {
    if (changed.some((name) => names.has(name))) watcher();
  }
}

// The address: #at=zoom,lat,lon&topic=…&mode=…

let written = "";

function writeAddress() {
  const parts = new URLSearchParams();
  if (state.view) {
    const { zoom, lat, lon } = state.view;
    const digits = Math.max(2, Math.ceil(zoom / 3));
    parts.set("at", `${zoom},${lat.toFixed(digits)},${lon.toFixed(digits)}`);
  }
  if (state.filter !== DEFAULTS.filter) parts.set("topic", state.filter);
  if (state.mode !== DEFAULTS.mode) parts.set("mode", state.mode);
  if (state.colour !== DEFAULTS.colour) parts.set("colour", state.colour);
  if (state.depth !== DEFAULTS.depth) parts.set("depth", state.depth);
  if (state.source) parts.set("source", state.source);
  if (state.shape) parts.set("shape", shapeToText(state.shape));
  written = `#${parts}`;
  history.replaceState(null, "", written);
}

function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const found = { ...DEFAULTS, selected: state.selected, view: state.view };
  const [zoom, lat, lon] = (parts.get("at") ?? "").split(",").map(Number);
  if ([zoom, lat, lon].every(Number.isFinite) && Math.abs(lat) <= 90) found.view = { zoom, lat, lon };
  if (parts.get("topic")) found.filter = parts.get("topic");
  if (parts.get("mode") === "history") found.mode = "history";
  if (parts.get("colour") === "value") found.colour = "value";
  if (["1", "2", "9"].includes(parts.get("depth"))) found.depth = Number(parts.get("depth"));
  const source = parts.get("source");
  if (source) found.source = source.includes("|") ? source : `${source}|`;
  found.shape = shapeFromText(parts.get("shape") ?? "");
  return found;
}

/** Take over what the address says, now and whenever somebody changes it by hand. */
export function followAddress() {
  Object.assign(state, readAddress());
  window.addEventListener("hashchange", () => {
    if (location.hash !== written) set(readAddress());
  });
}
