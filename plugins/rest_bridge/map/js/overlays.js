// What is there besides events: where clients were last known to be, and geofences in force.
// Both are asked for every few seconds, and not at all while they are hidden.

import { getFeatures } from "./api.js";
import { CanvasLayer } from "./canvas_layer.js";
import { make } from "./dom.js";

const EVERY_MS = 2000; // or less often, when the answer takes its time
const NAMES_FROM_ZOOM = 15;
const SAME_PIXELS = 40;

/** Asks for features again and again while it is on and somebody looks. */
class Poll {
  #path;
  #take;
  #refused;
  #on = false;
  #timer = 0;

  constructor(path, take, refused) {
    this.#path = path;
    this.#take = take;
    this.#refused = refused;
    document.addEventListener("visibilitychange", () => this.#ask());
  }

  switch(on) {
    this.#on = on;
    this.#ask();
  }

  async #ask() {
    clearTimeout(this.#timer);
    if (!this.#on || document.hidden) return;
    const askedAt = performance.now();
    try {
      this.#take(await getFeatures(this.#path));
    } catch (problem) {
      this.#refused(problem);
      if (problem.status === 401 || problem.status === 403) return;
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), Math.max(EVERY_MS, 10 * (performance.now() - askedAt)));
  }
}

/**
 * Rings round the places of clients, with their names when the map is near enough.
 *
 * An event is seen at once, a location when it is asked for next: where the two are as good
 * as the same (`headOf` knows a client's last event), the ring goes with the event.
 */
export const ClientLayer = CanvasLayer.extend({
  initialize(pane, { counted, refused, headOf }) {
    CanvasLayer.prototype.initialize.call(this, pane);
    this._headOf = headOf;
    this._clients = [];
    this._style = { ink: "#000", halo: "#fff" };
    this._poll = new Poll(
      "rest/clients",
      (features) => {
        this._clients = features.map(({ geometry, properties }) => ({
          name: properties.client,
          lon: geometry.coordinates[0],
          lat: geometry.coordinates[1],
        }));
        counted(this._clients.length);
        this.invalidate();
      },
      refused,
    );
  },

  onAdd(map) {
    CanvasLayer.prototype.onAdd.call(this, map);
    this._poll.switch(true);
  },

  onRemove(map) {
    this._poll.switch(false);
    CanvasLayer.prototype.onRemove.call(this, map);
  },

  setStyle(style) {
    this._style = style;
    this.invalidate();
  },

  paint(pen, project, size) {
    const named = this._map.getZoom() >= NAMES_FROM_ZOOM;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.lineWidth = 1.25;
    pen.strokeStyle = this._style.ink;
    const taken = []; // where there is a name already
    for (const { name, lon, lat } of this._clients) {
      const [x, y] = this._position(name, project(lon, lat), project);
      if (x < 0 || y < 0 || x > size.width || y > size.height) continue;
      pen.globalAlpha = 0.4;
      pen.beginPath();
      pen.arc(x, y, 9, 0, 7);
      pen.stroke();
      if (!named || taken.some(([tx, ty]) => Math.abs(tx - x) < 90 && Math.abs(ty - y) < 13)) continue;
      taken.push([x, y]);
      pen.globalAlpha = 0.9;
      pen.lineWidth = 3;
      pen.strokeStyle = this._style.halo;
      pen.strokeText(name, x + 13, y);
      pen.fillStyle = this._style.ink;
      pen.fillText(name, x + 13, y);
      pen.strokeStyle = this._style.ink;
      pen.lineWidth = 1.25;
    }
    pen.globalAlpha = 1;
  },

  _position(name, [x, y], project) {
    const head = this._headOf(name);
    if (!head) return [x, y];
    const [headX, headY] = project(head.lon, head.lat);
    return Math.hypot(headX - x, headY - y) < SAME_PIXELS ? [headX, headY] : [x, y];
  },
});

const KINDS = { near: "near its client", static: "geofence", dynamic: "geofence, moves with its client" };

function fenceLabel({ client, name, kind, filter }) {
  return make(
    "span",
    {},
    make("strong", {}, name ?? filter),
    make("br"),
    `${KINDS[kind] ?? kind}${name ? ` on ${filter}` : ""}`,
    make("br"),
    client,
  );
}

/** Geofences: dashed outlines that say on hover whose they are. */
export const FenceLayer = L.LayerGroup.extend({
  initialize(pane, { counted, refused }) {
    L.LayerGroup.prototype.initialize.call(this);
    this._renderer = L.canvas({ pane, padding: 0.3 });
    this._style = { fence: "#07c" };
    this._features = [];
    this._poll = new Poll(
      "rest/fences",
      (features) => {
        counted(features.length);
        // Redrawing closes a label that is being read: only when something has changed.
        if (JSON.stringify(features) === JSON.stringify(this._features)) return;
        this._features = features;
        this._show();
      },
      refused,
    );
  },

  onAdd(map) {
    L.LayerGroup.prototype.onAdd.call(this, map);
    this._poll.switch(true);
  },

  onRemove(map) {
    this._poll.switch(false);
    L.LayerGroup.prototype.onRemove.call(this, map);
  },

  setStyle(style) {
    this._style = style;
    this._show();
  },

  _show() {
    this.clearLayers();
    for (const feature of this._features) {
      const layer = L.geoJSON(feature, {
        renderer: this._renderer,
        style: { color: this._style.fence, weight: 1.25, opacity: 0.75, dashArray: "4 4", fillOpacity: 0.03 },
        pointToLayer: (_, place) => L.circleMarker(place, { renderer: this._renderer, radius: 6 }),
      });
      // An element, not text: a label given as text would be read as markup.
      layer.bindTooltip(fenceLabel(feature.properties), { sticky: true, className: "label" });
      this.addLayer(layer);
    }
  },
});
