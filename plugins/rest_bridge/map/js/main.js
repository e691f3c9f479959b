// The page, put together: the map, its layers, and who listens to whom.

import { beside, findEvents, findTopics, getJson, setLog } from "./api.js";
import { ChartPanel } from "./chart_panel.js";
import { fitRange } from "./colours.js";
import { Copying } from "./copying.js";
import { Details, firstSource } from "./details.js";
import { byId, make } from "./dom.js";
import { Drawing } from "./draw.js";
import { EventLayer } from "./event_layer.js";
import { EventList } from "./event_list.js";
import { Events } from "./events.js";
import { count } from "./format.js";
import { History } from "./history.js";
import { bindKeys } from "./keys.js";
import { Legend } from "./legend.js";
import { Live } from "./live.js";
import { Sources } from "./numbers.js";
import { ClientLayer, FenceLayer } from "./overlays.js";
import { followAddress, set, state, watch } from "./state.js";
import { Tabs } from "./tabs.js";
import { colourTokens, onTheme, theme, toggleTheme } from "./theme.js";
import { toast } from "./toast.js";
import { filterFault } from "./topics.js";
import { Watching } from "./watching.js";
import { loadWorld, NamesLayer, WorldLayer } from "./world.js";

const LISTED = 60;
const LIST_MS = 400; // lists and legends are for reading: twice a second is often enough
const RATE_MS = 5000;
const HIDDEN_MS = 10_000;
const WHOLE_WORLD = { zoom: 2, lat: 30, lon: 5 };

followAddress();

// The map and what lies on it, from the ground up.

const begin = state.view ?? WHOLE_WORLD;
const map = L.map("map", {
  center: [begin.lat, begin.lon],
  zoom: begin.zoom,
  minZoom: 2,
  maxZoom: 18,
  zoomSnap: 0.5,
  worldCopyJump: true,
  zoomControl: false,
  attributionControl: false,
});
L.control.zoom({ position: "topleft" }).addTo(map);
L.control.scale({ position: "bottomright", imperial: false }).addTo(map);
const PANES = { names: 250, fences: 350, clients: 450, events: 460, shape: 440 };
for (const [name, order] of Object.entries(PANES)) {
  map.createPane(name).style.zIndex = order;
}
for (const name of ["names", "clients", "events", "shape"]) map.getPane(name).style.pointerEvents = "none";

const events = new Events();
const sources = new Sources();
const eventLayer = new EventLayer("events", events).addTo(map);
const live = new Live(map, events);
const past = new History(map, events);
const question = () => (state.mode === "history" ? past.question() : live.question());

const counted = (id) => (number) => (byId(id).textContent = count(number));
const refused = (id) => (problem) => {
  byId(id).textContent = problem.status === 403 ? "not allowed" : "–";
};
const layers = {
  clients: new ClientLayer("clients", {
    counted: counted("client-count"),
    refused: refused("client-count"),
    headOf: (client) => eventLayer.headOf(client),
  }),
  fences: new FenceLayer("fences", { counted: counted("fence-count"), refused: refused("fence-count") }),
};
for (const [name, layer] of Object.entries(layers)) {
  const box = byId(`show-${name}`);
  const follow = () => (box.checked ? layer.addTo(map) : layer.remove());
  box.addEventListener("change", follow);
  follow();
}

// Who shows what.

const tabs = new Tabs();
const legend = new Legend(sources);
const list = new EventList(byId("event-list"), select);
const details = new Details({ centre, chart });
const chartPanel = new ChartPanel(sources, question, select);
const copying = new Copying(question);
const drawing = new Drawing(map, (shape) => {
  if (shape) set({ shape });
  if (shape) tabs.open("watch");
});
const watching = new Watching(map, past, select);

function select(event) {
  set({ selected: event });
  if (!map.getBounds().contains([event.lat, event.lon])) centre(event);
}

function centre({ lat, lon }) {
  map.setView([lat, lon], Math.max(map.getZoom(), 12));
}

function chart(event) {
  set({ source: firstSource(event) });
  tabs.open("chart");
}

function draw(kind) {
  set({ selected: null });
  drawing.start(kind);
}

// What is shown again when events have come or gone; not more often than one can read.

let listTimer = 0;

function listSoon() {
  listTimer ||= setTimeout(() => {
    listTimer = 0;
    fitRange(events);
    legend.show(events);
    const shown = shownEvents();
    list.show(shown);
    byId("event-count").textContent = shown.length ? `${count(events.size)} events here` : "Nothing here at this time.";
    byId("map").dataset.events = events.size;
    eventLayer.invalidate();
  }, LIST_MS);
}

function shownEvents() {
  if (state.mode === "live") return events.newest(LISTED);
  const [since, until] = past.window;
  const inside = [...events].filter((event) => event.start > since && event.start <= until);
  return inside.slice(-LISTED).reverse();
}

events.addEventListener("change", ({ detail }) => {
  sources.take(detail);
  eventLayer.invalidate();
  layers.clients.invalidate();
  listSoon();
});
legend.addEventListener("change", listSoon);
watch(["colour", "depth", "source"], listSoon);
watch(["selected"], () => {
  eventLayer.invalidate();
  if (state.selected) byId("panel").classList.add("open");
});
past.addEventListener("time", () => {
  eventLayer.setWindow(...past.window);
  listSoon();
});
past.addEventListener("loaded", () => {
  chartPanel.refresh();
  copying.show();
});
live.addEventListener("events", ({ detail }) => {
  chartPanel.take(detail);
  noteArrivals(detail.length);
  fitOnce();
});
tabs.addEventListener("change", () => {
  chartPanel.refresh();
  copying.show();
});
watch(["shape"], () => copying.show());

// Live or history, and the filter.

function enterMode() {
  const inHistory = state.mode === "history";
  byId("timeline").hidden = !inHistory;
  for (const name of ["live", "history"]) byId(`mode-${name}`).setAttribute("aria-pressed", String(state.mode === name));
  document.body.classList.toggle("in-history", inHistory);
  events.clear();
  if (inHistory) {
    live.stop();
    past.ask();
  } else {
    past.stop();
    eventLayer.setWindow(-Infinity, Infinity);
    live.follow();
  }
  showStatus();
}

function filterChanged() {
  byId("filter").value = state.filter;
  events.clear();
  set({ selected: null });
  if (state.mode === "live") live.follow();
  else past.ask({ keep: true });
  copying.show();
}

watch(["mode"], enterMode);
watch(["filter"], filterChanged);
byId("filter-form").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  const input = byId("filter");
  const fault = filterFault(input.value.trim());
  input.setCustomValidity(fault);
  if (fault) input.reportValidity();
  else set({ filter: input.value.trim() });
});
byId("filter").addEventListener("input", ({ target }) => target.setCustomValidity(""));
byId("filter").addEventListener("focus", offerTopics);
byId("filter").value = state.filter;

async function offerTopics() {
  try {
    const topics = await findTopics(300);
    const firsts = [...new Set(topics.map((topic) => topic.split("/")[0]))].map((first) => `${first}/#`);
    byId("topics").replaceChildren(...["#", ...firsts, ...topics].map((value) => make("option", { value })));
  } catch {
    // Suggestions are no more than that.
  }
}

// The map moves.

let moved = false; // by the user, or by a link: then the page leaves it where it is
let fitting = false;

map.on("moveend", () => {
  const { lat, lng } = map.getCenter().wrap();
  set({ view: { zoom: map.getZoom(), lat, lon: lng } });
  if (state.mode === "live") live.followSoon();
  else past.askSoon();
  if (state.mode === "live") chartPanel.refresh();
  copying.show();
});
map.on("dragstart zoomstart keydown", () => (moved ||= !fitting));
watch(["view"], () => {
  const { lat, lng } = map.getCenter().wrap();
  const { view } = state;
  if (view && (view.zoom !== map.getZoom() || Math.abs(view.lat - lat) > 1e-4 || Math.abs(view.lon - lng) > 1e-4)) {
    map.setView([view.lat, view.lon], view.zoom, { animate: false });
  }
});
map.on("click", ({ containerPoint }) => {
  if (!drawing.active) set({ selected: eventLayer.find(containerPoint) });
});
map.on("mousemove", ({ containerPoint }) => {
  const hit = !drawing.active && eventLayer.find(containerPoint);
  map.getContainer().classList.toggle("over-event", Boolean(hit));
});

/** Show where things happen, as long as nobody has said what they want to see. */
function fitTo(places) {
  if (!places.length) return false;
  fitting = true;
  const panel = byId("panel").getBoundingClientRect();
  const beside = panel.left > 100; // on a phone it lies below
  map.fitBounds(L.latLngBounds(places.map(({ lat, lon }) => [lat, lon])), {
    maxZoom: 13,
    paddingTopLeft: [50, 30],
    paddingBottomRight: beside ? [panel.width + 40, 40] : [20, 80],
  });
  map.once("moveend", () => (fitting = false));
  return true;
}

function fitOnce() {
  if (moved || events.size < 5) return;
  moved = true;
  fitTo([...events]);
}

function fitAll() {
  moved = true;
  if (!fitTo([...events])) toast("There is nothing on the map that it could show.");
}

// How it goes.

const arrivals = [];

function noteArrivals(number) {
  arrivals.push([performance.now(), number]);
}

function showStatus() {
  const box = byId("status");
  const now = performance.now();
  while (arrivals.length && now - arrivals[0][0] > RATE_MS) arrivals.shift();
  const rate = arrivals.reduce((sum, [, number]) => sum + number, 0) / (RATE_MS / 1000);
  const texts = {
    live: `live · ${count(rate)}/s`,
    connecting: "connecting",
    retrying: "waiting for the broker",
    refused: live.reason,
    closed: "connecting",
    history: "from the log",
  };
  const status = state.mode === "history" ? "history" : live.status;
  box.dataset.status = status;
  box.title = status === "live" ? live.following : "";
  if (box.textContent !== texts[status]) box.textContent = texts[status];
}

live.addEventListener("status", () => {
  showStatus();
  if (live.status === "refused") toast(live.reason);
});
setInterval(showStatus, 1000);

// Nobody sees what a hidden map draws: it leaves its connection to other pages, and looks
// into the log for what it has missed when it is seen again.

let hideTimer = 0;

document.addEventListener("visibilitychange", () => {
  clearTimeout(hideTimer);
  if (document.hidden) hideTimer = setTimeout(() => live.stop(), HIDDEN_MS);
  else if (state.mode === "live") live.follow();
});

// Light and dark.

function restyle() {
  const style = colourTokens("land", "coast", "border", "grid", "ink", "edge", "halo", "fence");
  eventLayer.setStyle(style);
  layers.clients.setStyle(style);
  layers.fences.setStyle(style);
  worldLayer?.setStyle(style);
  byId("theme").setAttribute("aria-label", theme() === "dark" ? "Light colours" : "Dark colours");
}

let worldLayer = null;
onTheme(restyle);

// Buttons and keys.

const modes = { live: () => set({ mode: "live" }), history: () => set({ mode: "history" }) };
byId("mode-live").addEventListener("click", modes.live);
byId("mode-history").addEventListener("click", modes.history);
byId("theme").addEventListener("click", toggleTheme);
byId("fit").addEventListener("click", fitAll);
for (const kind of ["polygon", "circle"]) {
  byId(`draw-${kind}`).addEventListener("click", () => draw(kind));
  byId(`watch-${kind}`).addEventListener("click", () => draw(kind));
}
byId("help-open").addEventListener("click", () => byId("help").showModal());
byId("legend-toggle").addEventListener("click", () => {
  const open = byId("legend").classList.toggle("open");
  byId("legend-toggle").setAttribute("aria-expanded", String(open));
});

bindKeys(
  {
    l: modes.live,
    h: modes.history,
    p: () => draw("polygon"),
    c: () => draw("circle"),
    f: fitAll,
    t: toggleTheme,
    k: () => state.mode === "history" && past.toggle(),
    "/": () => byId("filter").select(),
    "?": () => byId("help").showModal(),
    Escape: () => set({ selected: null }),
    1: () => tabs.open("events"),
    2: () => tabs.open("chart"),
    3: () => tabs.open("watch"),
    4: () => tabs.open("copy"),
  },
  drawing,
  {
    Escape: () => drawing.cancel(),
    Enter: () => drawing.finish(),
    Backspace: () => drawing.takeBack(),
    " ": () => drawing.takeCentre(),
  },
);

// And off it goes.

function addTiles({ tile_url: url, tile_attribution: attribution }) {
  L.tileLayer(url, { maxZoom: 19 }).addTo(map);
  byId("credit").textContent = attribution;
}

async function addWorld() {
  const world = await loadWorld(beside("world.json"));
  worldLayer = new WorldLayer(world, colourTokens("land", "coast", "border", "grid")).addTo(map);
  new NamesLayer(world.names).addTo(map);
}

async function findPlaceToLook() {
  if (state.view) {
    moved = true;
    return;
  }
  try {
    const recent = await findEvents({ filter: state.filter, size: 300 });
    if (recent.length && !moved) {
      moved = true;
      fitTo(recent);
    }
  } catch {
    // No log, or not allowed to see it: the first live events will show where to look.
  }
}

async function start() {
  let settings;
  try {
    settings = await getJson(beside("rest/map"));
  } catch (problem) {
    await addWorld();
    // Without a user name nothing else will be answered either; everything else may pass.
    if (problem.status === 401) return live.refuse(`${problem.message}: load the page again to sign in`);
    settings = { event_log: true };
  }
  setLog(settings.event_log);
  if (settings.tile_url) addTiles(settings);
  else if (!worldLayer) await addWorld();
  await findPlaceToLook();
  enterMode();
  watching.restart();
  return undefined;
}

restyle();
details.show();
await start();
