// Drawing a polygon or a circle on the map, with a mouse, a finger or the keyboard.
//
// polygon   click corners; the first corner, a double click or Enter ends it
// circle    click the middle, then the rim
//
// With the keyboard: arrows move the map, Space takes the place in its middle, Enter ends,
// Backspace takes the last corner back, Escape gives up.

import { byId } from "./dom.js";
import { metres } from "./format.js";
import { metresBetween, wrapLongitude } from "./shapes.js";

const CLOSE_PIXELS = 12;
const HINTS = {
  polygon: "Click the corners. Click the first one again, or press Enter, to finish.",
  circle: "Click the middle, then the rim.",
};

const place = ({ lat, lng }) => ({ lat, lon: lng });
const latLng = ({ lat, lon }) => L.latLng(lat, lon);

export class Drawing {
  #map;
  #done;
  #kind = null;
  #points = [];
  #sketch = L.layerGroup();

  /** `done` is called with a shape, or with null when the drawing was given up. */
  constructor(map, done) {
    this.#map = map;
    this.#done = done;
    byId("draw-finish").addEventListener("click", () => this.finish());
    byId("draw-cancel").addEventListener("click", () => this.cancel());
  }

  get active() {
    return this.#kind !== null;
  }

  start(kind) {
    this.#stop();
    this.#kind = kind;
    this.#points = [];
    this.#sketch.addTo(this.#map);
    this.#map.doubleClickZoom.disable();
    this.#map.on({ click: this.#click, mousemove: this.#move, dblclick: this.finish }, this);
    this.#map.getContainer().classList.add("drawing");
    this.#map.getContainer().focus({ preventScroll: true });
    this.#say(HINTS[kind]);
    byId("draw-bar").hidden = false;
    byId("draw-finish").hidden = kind === "circle";
  }

  #say(text) {
    byId("draw-hint").textContent = text;
  }

  #click({ latlng }) {
    this.take(place(latlng));
  }

  /** Take a corner, the middle or the rim. */
  take(point) {
    const first = this.#points[0];
    if (this.#kind === "polygon" && this.#points.length > 2 && this.#near(first, point)) {
      this.finish();
      return;
    }
    const last = this.#points.at(-1);
    if (last && this.#near(last, point, 2)) return; // the second half of a double click
    this.#points.push(point);
    if (this.#kind === "circle" && this.#points.length === 2) this.finish();
    else this.#show(point);
  }

  takeCentre() {
    this.take(place(this.#map.getCenter()));
  }

  takeBack() {
    this.#points.pop();
    this.#show(this.#points.at(-1));
  }

  #near(a, b, pixels = CLOSE_PIXELS) {
    const [p, q] = [a, b].map((each) => this.#map.latLngToContainerPoint(latLng(each)));
    return p.distanceTo(q) <= pixels;
  }

  #move({ latlng }) {
    this.#show(place(latlng));
  }

  #show(pointer) {
    this.#sketch.clearLayers();
    if (!this.#points.length || !pointer) return;
    const style = { className: "sketch", interactive: false };
    if (this.#kind === "circle") {
      const radius = metresBetween(this.#points[0], pointer);
      this.#sketch.addLayer(L.circle(latLng(this.#points[0]), { ...style, radius }));
      this.#say(`Radius ${metres(radius)}. Click the rim.`);
    } else {
      this.#sketch.addLayer(L.polygon([...this.#points, pointer].map(latLng), style));
    }
    for (const point of this.#points) {
      this.#sketch.addLayer(L.circleMarker(latLng(point), { ...style, className: "corner", radius: 5 }));
    }
  }

  finish() {
    const kind = this.#kind;
    const points = this.#points.map(({ lat, lon }) => ({ lat, lon: wrapLongitude(lon) }));
    if (kind === "polygon" && points.length < 3) {
      this.#say("A polygon needs three corners at least.");
      return;
    }
    if (kind === "circle" && points.length < 2) return;
    this.#stop();
    if (kind === "polygon") this.#done({ kind, points });
    else this.#done({ kind, centre: points[0], metres: Math.max(1, Math.round(metresBetween(...points))) });
  }

  cancel() {
    this.#stop();
    this.#done(null);
  }

  #stop() {
    if (!this.#kind) return;
    this.#kind = null;
    this.#sketch.clearLayers().remove();
    this.#map.off({ click: this.#click, mousemove: this.#move, dblclick: this.finish }, this);
    this.#map.getContainer().classList.remove("drawing");
    // Not at once, or the double click that ends a drawing would zoom as well.
    setTimeout(() => this.active || this.#map.doubleClickZoom.enable(), 300);
    byId("draw-bar").hidden = true;
  }
}
