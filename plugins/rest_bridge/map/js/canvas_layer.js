// A canvas over the map that keeps its place while the map moves and zooms.
//
// Who extends it draws in paint(pen, project), in pixels of the window; invalidate() asks for
// a new picture, and however often it is called there is one per frame.

const PADDING = 0.15; // of the map's size, on every side, so that a drag shows no bare edge

export const CanvasLayer = L.Layer.extend({
  initialize(pane) {
    this._paneName = pane;
    this._scheduled = 0;
  },

  onAdd(map) {
    this._canvas = L.DomUtil.create("canvas", "leaflet-zoom-animated canvas-layer");
    this._canvas.setAttribute("aria-hidden", "true");
    map.getPane(this._paneName).append(this._canvas);
    this._place();
  },

  onRemove() {
    cancelAnimationFrame(this._scheduled);
    this._scheduled = 0;
    this._canvas.remove();
  },

  getEvents() {
    const events = { moveend: this._place, resize: this._place, viewreset: this._place };
    if (this._map.options.zoomAnimation) events.zoomanim = this._animate;
    return events;
  },

  invalidate() {
    if (this._map && !this._scheduled) {
      this._scheduled = requestAnimationFrame(() => {
        this._scheduled = 0;
        this._draw();
      });
    }
  },

  _place() {
    const size = this._map.getSize();
    const margin = size.multiplyBy(PADDING).round();
    const room = size.add(margin.multiplyBy(2));
    this._corner = this._map.containerPointToLayerPoint(margin.multiplyBy(-1));
    this._cornerPlace = this._map.layerPointToLatLng(this._corner);
    const ratio = window.devicePixelRatio || 1;
    this._canvas.width = room.x * ratio;
    this._canvas.height = room.y * ratio;
    this._canvas.style.width = `${room.x}px`;
    this._canvas.style.height = `${room.y}px`;
    L.DomUtil.setTransform(this._canvas, this._corner, 1);
    cancelAnimationFrame(this._scheduled);
    this._scheduled = 0;
    this._draw();
  },

  // Stretch the picture as the map is stretched; the right one follows at the end.
  _animate({ zoom, center }) {
    const map = this._map;
    const pane = L.DomUtil.getPosition(map.getPane("mapPane"));
    const origin = map.project(center, zoom).subtract(map.getSize().divideBy(2)).add(pane);
    const corner = map.project(this._cornerPlace, zoom).subtract(origin).round();
    L.DomUtil.setTransform(this._canvas, corner, map.getZoomScale(zoom));
  },

  _draw() {
    const pen = this._canvas.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this._canvas.width, this._canvas.height);
    const map = this._map;
    const origin = map.getPixelOrigin().add(this._corner);
    const scale = map.options.crs.scale(map.getZoom());
    const middle = map.getCenter().lng;
    // Web Mercator by hand: thousands of points a frame, and nearest to the middle of the map.
    const project = (lon, lat) => {
      const turns = Math.round((middle - lon) / 360);
      const sine = Math.sin((Math.max(-85.0511, Math.min(85.0511, lat)) * Math.PI) / 180);
      return [
        ((lon + turns * 360 + 180) / 360) * scale - origin.x,
        (0.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI)) * scale - origin.y,
      ];
    };
    this.paint(pen, project, { width: this._canvas.width / ratio, height: this._canvas.height / ratio });
  },

  /** Where a place in the window lies on the canvas. */
  toCanvas(containerPoint) {
    return this._map.containerPointToLayerPoint(containerPoint).subtract(this._corner);
  },
});
