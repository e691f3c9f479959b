// Events on the map: where each track is now, the way it came, and areas and lines as such.
//
// The last event of a track is a dot, the ones before a thinning line (or, coloured by value,
// smaller dots). An event that has just come has a halo for a moment.

import { CanvasLayer } from "./canvas_layer.js";
import { colourOf, isColoured, visible } from "./colours.js";
import { partsOf } from "./shapes.js";
import { state } from "./state.js";

const HALO_MS = 900;
const TRAIL = 80; // events of a track that are drawn behind its last one
const FRAME_MS = 33; // halos need no more than thirty pictures a second
const REACH = 14; // pixels from which a click still means an event
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

export const EventLayer = CanvasLayer.extend({
  initialize(pane, events) {
    CanvasLayer.prototype.initialize.call(this, pane);
    this._store = events; // not _events: that is the name of Leaflet's own listeners
    this._until = Infinity; // in history, what is later is not drawn
    this._since = -Infinity;
    this._spots = []; // what was drawn: { x, y, event }
    this._heads = new Map(); // client -> the event it was drawn at last
    this._paintedAt = 0;
    this._style = { edge: "#fff", ink: "#000" };
  },

  setStyle(style) {
    this._style = style;
    this.invalidate();
  },

  /** Show only what happened in a window of time. */
  setWindow(since, until) {
    this._since = since;
    this._until = until;
    this.invalidate();
  },

  /** The last event of a client that is on the map. */
  headOf(client) {
    return this._heads.get(client);
  },

  /** The event at a place in the window, or null. */
  find(containerPoint) {
    const { x, y } = this.toCanvas(containerPoint);
    let best = null;
    let nearest = REACH ** 2;
    for (const spot of this._spots) {
      const distance = (spot.x - x) ** 2 + (spot.y - y) ** 2;
      // Of two at the same place the later one is meant: it lies on top.
      if (distance <= nearest) [best, nearest] = [spot.event, distance];
    }
    return best ?? this._areas.findLast(({ path }) => this._hits(path, x, y))?.event ?? null;
  },

  _hits(path, x, y) {
    const pen = this._canvas.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    pen.lineWidth = REACH;
    return pen.isPointInPath(path, x * ratio, y * ratio) || pen.isPointInStroke(path, x * ratio, y * ratio);
  },

  paint(pen, project, size) {
    this._spots = [];
    this._areas = [];
    this._halos = [];
    const heads = [];
    this._heads = new Map();
    for (const track of this._store.tracks.values()) {
      const end = this._end(track);
      if (end < 0 || !visible(track[end])) continue;
      this._paintTrail(pen, project, track, end);
      heads.push(track[end]);
    }
    heads.sort((a, b) => isColoured(a) - isColoured(b) || a.start - b.start);
    const now = Date.now();
    for (const event of heads) {
      this._paintHead(pen, project, size, event, now);
      this._heads.set(event.client, event);
    }
    this._paintSelected(pen, project);
    if (this._halos.length && !calm.matches) this._goOn();
  },

  /** The last event of a track inside the window of time; -1 if there is none. */
  _end(track) {
    let end = track.length - 1;
    if (this._until !== Infinity) {
      while (end >= 0 && track[end].start > this._until) end -= 1;
    }
    return end >= 0 && track[end].start >= this._since ? end : -1;
  },

  _paintTrail(pen, project, track, end) {
    const first = Math.max(0, end - TRAIL);
    pen.lineCap = "round";
    let [x, y] = project(track[first].lon, track[first].lat);
    for (let index = first + 1; index <= end; index += 1) {
      const event = track[index];
      const [nextX, nextY] = project(event.lon, event.lat);
      const old = track[index - 1];
      if (event.isPoint && old.isPoint && old.start >= this._since && (nextX !== x || nextY !== y)) {
        const strength = 1 - (end - index) / TRAIL;
        pen.globalAlpha = (isColoured(event) ? 0.65 : 0.2) * strength;
        pen.strokeStyle = colourOf(event);
        pen.lineWidth = 1 + 2 * strength;
        pen.beginPath();
        pen.moveTo(x, y);
        pen.lineTo(nextX, nextY);
        pen.stroke();
        this._spots.push({ x, y, event: old });
      }
      [x, y] = [nextX, nextY];
    }
    pen.globalAlpha = 1;
  },

  _paintHead(pen, project, size, event, now) {
    if (!event.isPoint) return this._paintArea(pen, project, event);
    const [x, y] = project(event.lon, event.lat);
    if (x < -20 || y < -20 || x > size.width + 20 || y > size.height + 20) return undefined;
    const colour = colourOf(event);
    const age = now - (event.arrived ?? 0);
    if (age < HALO_MS && !calm.matches) {
      pen.globalAlpha = 0.45 * (1 - age / HALO_MS);
      pen.fillStyle = colour;
      pen.beginPath();
      pen.arc(x, y, 6 + (age / HALO_MS) * 9, 0, 7);
      pen.fill();
      this._halos.push(event);
    }
    pen.globalAlpha = isColoured(event) ? 1 : 0.45;
    pen.fillStyle = colour;
    pen.strokeStyle = this._style.edge;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(x, y, 5.5, 0, 7);
    pen.fill();
    pen.stroke();
    pen.globalAlpha = 1;
    this._spots.push({ x, y, event });
    return undefined;
  },

  _paintArea(pen, project, event) {
    const path = new Path2D();
    let closed = false;
    for (const { kind, coordinates } of partsOf(event.geometry)) {
      for (const [index, [lon, lat]] of coordinates.entries()) {
        const [x, y] = project(lon, lat);
        if (kind === "point") path.arc(x, y, 5, 0, 7);
        else if (index) path.lineTo(x, y);
        else path.moveTo(x, y);
      }
      closed ||= kind !== "line";
    }
    pen.strokeStyle = pen.fillStyle = colourOf(event);
    pen.lineWidth = 2.5;
    pen.globalAlpha = 0.18;
    if (closed) pen.fill(path, "evenodd");
    pen.globalAlpha = 0.9;
    pen.stroke(path);
    pen.globalAlpha = 1;
    this._areas.push({ path, event });
  },

  _paintSelected(pen, project) {
    if (!state.selected) return;
    const [x, y] = project(state.selected.lon, state.selected.lat);
    pen.strokeStyle = this._style.ink;
    pen.lineWidth = 2.5;
    pen.beginPath();
    pen.arc(x, y, 11, 0, 7);
    pen.stroke();
  },

  _goOn() {
    const wait = Math.max(0, FRAME_MS - (performance.now() - this._paintedAt));
    clearTimeout(this._timer);
    this._timer = setTimeout(() => {
      this._paintedAt = performance.now();
      this.invalidate();
    }, wait);
  },
});
