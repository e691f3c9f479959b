// Shapes that were drawn, and geometry text as the REST interface and `$geo/` topics read it.
//
//   { kind: "polygon", points: [{ lat, lon }, …] }         POLYGON((…))
//   { kind: "circle", centre: { lat, lon }, metres }       BUFFER(POINT(…),metres)

const EARTH_M = 6371008.8;
const radians = (degrees) => (degrees * Math.PI) / 180;

const number = (value, digits = 6) => String(Number(value.toFixed(digits)));
const pair = ({ lat, lon }) => `${number(wrapLongitude(lon))} ${number(lat)}`;

export function wrapLongitude(lon) {
  return lon >= -180 && lon <= 180 ? lon : ((((lon + 180) % 360) + 360) % 360) - 180;
}

/** The distance of two places on a sphere: good to half a percent. */
export function metresBetween(a, b) {
  const dLat = radians(b.lat - a.lat);
  const dLon = radians(b.lon - a.lon);
  const h =
    Math.sin(dLat / 2) ** 2 +
    Math.cos(radians(a.lat)) * Math.cos(radians(b.lat)) * Math.sin(dLon / 2) ** 2;
  return 2 * EARTH_M * Math.asin(Math.min(1, Math.sqrt(h)));
}

/** The geometry text of a shape. */
export function shapeToText(shape) {
  if (shape.kind === "circle") return `BUFFER(POINT(${pair(shape.centre)}),${Math.round(shape.metres)})`;
  return `POLYGON((${[...shape.points, shape.points[0]].map(pair).join(",")}))`;
}

/** Read what shapeToText has written; null for anything else. */
export function shapeFromText(text) {
  const point = (words) => {
    const [lon, lat] = words.trim().split(/\s+/).map(Number);
    return Number.isFinite(lon) && Math.abs(lat) <= 90 ? { lat, lon } : null;
  };
  const circle = /^BUFFER\(POINT\(([^()]+)\),(\d+)\)$/.exec(text);
  if (circle) {
    const centre = point(circle[1]);
    return centre && { kind: "circle", centre, metres: Number(circle[2]) };
  }
  const polygon = /^POLYGON\(\(([^()]+)\)\)$/.exec(text);
  const points = polygon ? polygon[1].split(",").map(point).slice(0, -1) : [];
  return points.length > 2 && points.every(Boolean) ? { kind: "polygon", points } : null;
}

/** What the map shows, as geometry text; null when it shows every meridian. */
export function boundsToText(bounds) {
  if (bounds.getEast() - bounds.getWest() >= 359) return null;
  const south = Math.max(bounds.getSouth(), -90);
  const north = Math.min(bounds.getNorth(), 90);
  const [west, east] = [bounds.getWest(), bounds.getEast()].map(wrapLongitude);
  return `BBOX(${[west, south, east, north].map((each) => number(each, 5)).join(",")})`;
}

/** A place for a geometry: its point, or the middle of the box round it. */
export function anchorOf(geometry) {
  let [west, south, east, north] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const part of partsOf(geometry)) {
    for (const [lon, lat] of part.coordinates) {
      west = Math.min(west, lon);
      east = Math.max(east, lon);
      south = Math.min(south, lat);
      north = Math.max(north, lat);
    }
  }
  return { lon: (west + east) / 2, lat: (south + north) / 2 };
}

/** Take a GeoJSON geometry apart into points, lines and rings: { kind, coordinates }. */
export function* partsOf(geometry) {
  const { type, coordinates } = geometry;
  if (type === "Point") yield { kind: "point", coordinates: [coordinates] };
  else if (type === "MultiPoint") yield* coordinates.map((each) => ({ kind: "point", coordinates: [each] }));
  else if (type === "LineString") yield { kind: "line", coordinates };
  else if (type === "MultiLineString") yield* coordinates.map((each) => ({ kind: "line", coordinates: each }));
  else if (type === "Polygon") yield* coordinates.map((each) => ({ kind: "ring", coordinates: each }));
  else if (type === "MultiPolygon") {
    for (const polygon of coordinates) yield* polygon.map((each) => ({ kind: "ring", coordinates: each }));
  } else if (type === "GeometryCollection") {
    for (const part of geometry.geometries) yield* partsOf(part);
  }
}
