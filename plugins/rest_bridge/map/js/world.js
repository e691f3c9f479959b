// A world to look at without any network: land, borders and a graticule, drawn into tiles.
//
// world.json holds whole numbers, `scale` to a degree, rings and lines as a start and steps.

const GRID_STEPS = [30, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01];
const TILE = 512;

/** Where a place lies on a world of width and height 1. */
function unit(lon, lat) {
  const sine = Math.sin((Math.max(-85.0511, Math.min(85.0511, lat)) * Math.PI) / 180);
  return [(lon + 180) / 360, 0.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI)];
}

/** Decode a line, project it, and measure the box round it. */
function decode(steps, scale) {
  const points = new Float64Array(steps.length);
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  let [x, y] = [0, 0];
  for (let index = 0; index < steps.length; index += 2) {
    x += steps[index];
    y += steps[index + 1];
    const [u, v] = unit(x / scale, y / scale);
    points[index] = u;
    points[index + 1] = v;
    box[0] = Math.min(box[0], u);
    box[1] = Math.min(box[1], v);
    box[2] = Math.max(box[2], u);
    box[3] = Math.max(box[3], v);
  }
  return { points, box };
}

export async function loadWorld(url) {
  const { scale, land, borders, names } = await (await fetch(url)).json();
  return {
    land: land.map((rings) => rings.map((ring) => decode(ring, scale))),
    borders: borders.map((line) => decode(line, scale)),
    names: names.map(([name, lon, lat, zoom, country]) => ({ name, lon, lat, zoom, country: Boolean(country) })),
  };
}

const apart = (box, [west, north, east, south]) =>
  box[2] < west || box[0] > east || box[3] < north || box[1] > south;

export const WorldLayer = L.GridLayer.extend({
  initialize(world, style) {
    L.GridLayer.prototype.initialize.call(this, { tileSize: TILE, updateWhenZooming: false, keepBuffer: 1 });
    this._world = world;
    this._style = style;
  },

  setStyle(style) {
    this._style = style;
    this.redraw();
  },

  createTile({ x, y, z }) {
    const tile = document.createElement("canvas");
    const ratio = window.devicePixelRatio || 1;
    tile.width = tile.height = TILE * ratio;
    // 512 pixels to a tile: half as many tiles at a zoom as there are 256-pixel ones.
    const tiles = (256 / TILE) * 2 ** z;
    const column = ((x % tiles) + tiles) % tiles;
    const pen = tile.getContext("2d");
    const scale = TILE * ratio * tiles;
    pen.translate(-column * TILE * ratio, -y * TILE * ratio);
    const margin = 4 / scale;
    const box = [column / tiles - margin, y / tiles - margin, (column + 1) / tiles + margin, (y + 1) / tiles + margin];
    this._paintLand(pen, scale, box, ratio);
    this._paintGrid(pen, scale, box, z, ratio);
    return tile;
  },

  _trace(pen, scale, { points }) {
    pen.moveTo(points[0] * scale, points[1] * scale);
    for (let index = 2; index < points.length; index += 2) {
      pen.lineTo(points[index] * scale, points[index + 1] * scale);
    }
  },

  _paintLand(pen, scale, box, ratio) {
    pen.beginPath();
    for (const [outer, ...holes] of this._world.land) {
      if (apart(outer.box, box)) continue;
      for (const ring of [outer, ...holes]) this._trace(pen, scale, ring);
    }
    pen.fillStyle = this._style.land;
    pen.fill("evenodd");
    pen.strokeStyle = this._style.coast;
    pen.lineWidth = ratio;
    pen.lineJoin = "round";
    pen.stroke();
    pen.beginPath();
    for (const line of this._world.borders) if (!apart(line.box, box)) this._trace(pen, scale, line);
    pen.strokeStyle = this._style.border;
    pen.setLineDash([4 * ratio, 3 * ratio]);
    pen.stroke();
    pen.setLineDash([]);
  },

  _paintGrid(pen, scale, [west, north, east, south], zoom, ratio) {
    const wanted = (360 / 2 ** zoom) * 0.7;
    const step = GRID_STEPS.find((each) => each <= wanted) ?? GRID_STEPS.at(-1);
    const latitude = (v) => (Math.atan(Math.sinh((1 - 2 * v) * Math.PI)) * 180) / Math.PI;
    pen.beginPath();
    for (let n = Math.floor((west * 360 - 180) / step); n * step <= east * 360 - 180; n += 1) {
      const [u] = unit(n * step, 0);
      pen.moveTo(u * scale, north * scale);
      pen.lineTo(u * scale, south * scale);
    }
    for (let n = Math.floor(latitude(south) / step); n * step <= latitude(north); n += 1) {
      const [, v] = unit(0, n * step);
      pen.moveTo(west * scale, v * scale);
      pen.lineTo(east * scale, v * scale);
    }
    pen.strokeStyle = this._style.grid;
    pen.lineWidth = ratio;
    pen.stroke();
  },
});

/** Names of countries and towns; those that would lie on another are left out. */
export const NamesLayer = L.Layer.extend({
  initialize(names) {
    this._names = names;
  },

  onAdd(map) {
    this._box = L.DomUtil.create("div", "names", map.getPane("names"));
    this._show();
  },

  onRemove() {
    this._box.remove();
  },

  getEvents() {
    return { moveend: this._show, zoomend: this._show };
  },

  _show() {
    const map = this._map;
    const zoom = map.getZoom();
    const bounds = map.getBounds();
    const middle = map.getCenter().lng;
    const taken = [];
    this._box.replaceChildren();
    for (const { name, lon, lat, zoom: from, country } of this._names) {
      if (zoom < from || (country && zoom > 6)) continue;
      const place = L.latLng(lat, lon + 360 * Math.round((middle - lon) / 360));
      if (!bounds.contains(place)) continue;
      const point = map.latLngToLayerPoint(place);
      const half = name.length * 4;
      if (taken.some(([x, y, other]) => Math.abs(x - point.x) < half + other && Math.abs(y - point.y) < 16)) continue;
      taken.push([point.x, point.y, half]);
      const label = L.DomUtil.create("span", country ? "name country" : "name town", this._box);
      label.textContent = name;
      L.DomUtil.setPosition(label, point);
    }
  },
});
