// The map: density tiles, tracks, stops and fences on a canvas, without any base map.
// World coordinates are those of web maps: 0..1 from 180° W to 180° E and from 85° N to 85° S.

(() => {
  const source = document.getElementById("map-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const canvas = document.getElementById("canvas");
  const pen = canvas.getContext("2d");
  const layers = { tiles: true, lines: true, stops: true, fences: true };

  const toX = (lon) => (lon + 180) / 360;
  const toY = (lat) => {
    const r = (Math.max(-85.05, Math.min(85.05, lat)) * Math.PI) / 180;
    return (1 - Math.asinh(Math.tan(r)) / Math.PI) / 2;
  };
  const toLon = (x) => x * 360 - 180;
  const toLat = (y) => (Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180) / Math.PI;

  const zooms = Object.keys(data.tiles).map(Number).sort((a, b) => a - b);
  const grids = new Map(zooms.map((zoom) => {
    const tiles = data.tiles[zoom];
    const most = tiles.reduce((peak, tile) => Math.max(peak, tile[2]), 1);
    return [zoom, { tiles, most, at: new Map(tiles.map((tile) => [`${tile[0]}/${tile[1]}`, tile])) }];
  }));
  const lines = data.lines.map(([name, places]) => [name, places.map(([x, y]) => [toX(x), toY(y)])]);
  const view = { x: 0.5, y: 0.5, scale: 1 }; // the middle, and pixels per world
  let width = 0;
  let height = 0;

  const px = (x) => (x - view.x) * view.scale + width / 2;
  const py = (y) => (y - view.y) * view.scale + height / 2;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function fit() {
    const [west, south, east, north] = data.view;
    const [x1, x2, y1, y2] = [toX(west), toX(east), toY(north), toY(south)];
    view.x = (x1 + x2) / 2;
    view.y = (y1 + y2) / 2;
    const room = Math.min(width / Math.max(x2 - x1, 1e-7), height / Math.max(y2 - y1, 1e-7));
    view.scale = Math.min(room * 0.8, 2 ** 28);
    draw();
  }

  // The finest grid whose tiles are still large enough to be seen as such.
  function currentZoom() {
    return zooms.filter((zoom) => view.scale / 2 ** zoom >= 7).at(-1) ?? zooms[0];
  }

  function drawGraticule() {
    const degrees = (width / view.scale) * 360;
    const step = [30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001]
      .find((size) => degrees / size >= 5) ?? 0.001;
    const digits = Math.max(0, Math.ceil(-Math.log10(step)));
    pen.strokeStyle = colour("--line");
    pen.fillStyle = colour("--soft");
    pen.font = "11px system-ui, sans-serif";
    pen.lineWidth = 1;
    pen.beginPath();
    const [west, east] = [toLon(view.x - width / 2 / view.scale), toLon(view.x + width / 2 / view.scale)];
    const [north, south] = [toLat(view.y - height / 2 / view.scale), toLat(view.y + height / 2 / view.scale)];
    for (let n = Math.ceil(west / step); n * step <= east; n++) {
      const x = Math.round(px(toX(n * step))) + 0.5;
      pen.moveTo(x, 0);
      pen.lineTo(x, height);
      const lon = n * step;
      pen.fillText(`${Math.abs(lon).toFixed(digits)}° ${lon < 0 ? "W" : "E"}`, x + 4, height - 8);
    }
    for (let n = Math.ceil(south / step); n * step <= north; n++) {
      const y = Math.round(py(toY(n * step))) + 0.5;
      pen.moveTo(0, y);
      pen.lineTo(width, y);
      const lat = n * step;
      pen.fillText(`${Math.abs(lat).toFixed(digits)}° ${lat < 0 ? "S" : "N"}`, 8, y - 4);
    }
    pen.stroke();
  }

  function drawScale() {
    const metres = (40075016.7 * Math.cos((toLat(view.y) * Math.PI) / 180)) / view.scale;
    let length = 10 ** Math.floor(Math.log10(metres * 160));
    for (const factor of [5, 2]) if (length * factor <= metres * 160) { length *= factor; break; }
    const wide = length / metres;
    const [right, y] = [width - 14, height - 26];
    pen.fillStyle = colour("--ink");
    pen.fillRect(right - wide, y, wide, 3);
    pen.textAlign = "right";
    pen.fillText(length >= 1000 ? `${length / 1000} km` : `${length} m`, right, y - 5);
    pen.textAlign = "left";
  }

  function drawTiles() {
    const zoom = currentZoom();
    const { tiles, most } = grids.get(zoom);
    const side = 2 ** zoom;
    pen.fillStyle = colour("--accent");
    for (const [x, y, events] of tiles) {
      const [left, top] = [px(x / side), py(y / side)];
      const size = view.scale / side;
      if (left > width || top > height || left + size < 0 || top + size < 0) continue;
      pen.globalAlpha = 0.1 + 0.75 * (Math.log1p(events) / Math.log1p(most)) ** 2;
      pen.fillRect(left + 0.5, top + 0.5, size - 1, size - 1);
    }
    pen.globalAlpha = 1;
  }

  function drawLines() {
    pen.strokeStyle = colour("--second");
    pen.lineWidth = 1.4;
    pen.lineJoin = "round";
    pen.globalAlpha = 0.55;
    for (const [, places] of lines) {
      pen.beginPath();
      places.forEach(([x, y], n) => {
        // A step over the antimeridian is not drawn across the whole map.
        const jump = n > 0 && Math.abs(x - places[n - 1][0]) > 0.5;
        if (n === 0 || jump) pen.moveTo(px(x), py(y));
        else pen.lineTo(px(x), py(y));
      });
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  function drawStops() {
    for (const [, x, y] of data.stops) {
      pen.beginPath();
      pen.arc(px(toX(x)), py(toY(y)), 6, 0, 2 * Math.PI);
      pen.fillStyle = colour("--card");
      pen.fill();
      pen.lineWidth = 3;
      pen.strokeStyle = colour("--bad");
      pen.stroke();
    }
  }

  function rings(geometry) {
    if (geometry.type === "Polygon") return geometry.coordinates;
    if (geometry.type === "MultiPolygon") return geometry.coordinates.flat();
    if (geometry.type === "GeometryCollection") return geometry.geometries.flatMap(rings);
    return [];
  }

  function drawFences() {
    pen.font = "600 12px system-ui, sans-serif";
    for (const [name, geometry] of data.fences) {
      pen.beginPath();
      for (const ring of rings(geometry)) {
        ring.forEach(([x, y], n) => pen[n ? "lineTo" : "moveTo"](px(toX(x)), py(toY(y))));
        pen.closePath();
      }
      pen.strokeStyle = colour("--ink");
      pen.lineWidth = 1.6;
      pen.setLineDash([6, 4]);
      pen.stroke();
      pen.setLineDash([]);
      const first = rings(geometry)[0]?.[0];
      if (first) {
        pen.fillStyle = colour("--ink");
        pen.fillText(name, px(toX(first[0])) + 4, py(toY(first[1])) - 5);
      }
    }
  }

  function draw() {
    const ratio = devicePixelRatio || 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    drawGraticule();
    if (layers.tiles) drawTiles();
    if (layers.lines) drawLines();
    if (layers.fences) drawFences();
    if (layers.stops) drawStops();
    drawScale();
  }

  function zoomBy(factor, atX, atY) {
    const [x, y] = [view.x + (atX - width / 2) / view.scale, view.y + (atY - height / 2) / view.scale];
    view.scale = Math.max(300, Math.min(2 ** 28, view.scale * factor));
    view.x = x - (atX - width / 2) / view.scale;
    view.y = y - (atY - height / 2) / view.scale;
    draw();
  }

  function describe(event) {
    const box = canvas.getBoundingClientRect();
    const [mx, my] = [event.clientX - box.left, event.clientY - box.top];
    const near = (x, y, reach) => (px(x) - mx) ** 2 + (py(y) - my) ** 2 < reach ** 2;
    if (layers.stops) {
      const stop = data.stops.find(([, x, y]) => near(toX(x), toY(y), 9));
      if (stop) return `${stop[0]} stood here for ${Math.round(stop[3] / 60)} minutes`;
    }
    if (layers.lines) {
      const line = lines.find(([, places]) => places.some(([x, y]) => near(x, y, 4)));
      if (line) return line[0];
    }
    if (!layers.tiles) return "";
    const zoom = currentZoom();
    const side = 2 ** zoom;
    const x = Math.floor((view.x + (mx - width / 2) / view.scale) * side);
    const y = Math.floor((view.y + (my - height / 2) / view.scale) * side);
    const tile = grids.get(zoom).at.get(`${x}/${y}`);
    return tile ? `${tile[2].toLocaleString("en")} events · ${tile[3].toLocaleString("en")} clients` : "";
  }

  let dragging = null;
  canvas.addEventListener("pointerdown", (event) => {
    dragging = [event.clientX, event.clientY];
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("dragging");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!dragging) return showTip(describe(event), event);
    view.x -= (event.clientX - dragging[0]) / view.scale;
    view.y -= (event.clientY - dragging[1]) / view.scale;
    dragging = [event.clientX, event.clientY];
    draw();
  });
  const drop = () => { dragging = null; canvas.classList.remove("dragging"); };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", drop);
  canvas.addEventListener("pointerleave", (event) => showTip("", event));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoomBy(2 ** (-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-60, 0], ArrowRight: [60, 0], ArrowUp: [0, -60], ArrowDown: [0, 60] }[event.key];
    if (move) {
      view.x += move[0] / view.scale;
      view.y += move[1] / view.scale;
      draw();
    } else if (event.key === "+" || event.key === "-") {
      zoomBy(event.key === "+" ? 1.6 : 1 / 1.6, width / 2, height / 2);
    } else return;
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("[data-map]")) {
    button.addEventListener("click", () => {
      if (button.dataset.map === "fit") fit();
      else zoomBy(button.dataset.map === "in" ? 1.6 : 1 / 1.6, width / 2, height / 2);
    });
  }
  for (const box of document.querySelectorAll("[data-layer]")) {
    const empty = box.dataset.layer === "tiles" ? !zooms.length : !data[box.dataset.layer].length;
    if (empty) box.parentElement.remove();
    box.addEventListener("change", () => { layers[box.dataset.layer] = box.checked; draw(); });
  }
  document.addEventListener("themechange", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  let shown = false;
  new ResizeObserver(() => {
    const box = canvas.getBoundingClientRect();
    [width, height] = [box.width, box.height];
    canvas.width = Math.round(width * (devicePixelRatio || 1));
    canvas.height = Math.round(height * (devicePixelRatio || 1));
    if (shown) draw();
    else { shown = true; fit(); }
  }).observe(canvas);
})();
