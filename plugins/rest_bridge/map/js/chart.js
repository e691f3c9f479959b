// A line chart of numbers over time, as SVG: axes, a line per series, and a reading under
// the pointer. It knows nothing of events: series are { name, colour, points: [[ms, number]] }.

import { makeSvg } from "./dom.js";
import { moment, quantity } from "./format.js";

const MARGIN = { top: 10, right: 12, bottom: 22, left: 44 };
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** Round steps for an axis: low, high and the ticks between. */
function niceTicks(low, high, wanted) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / wanted));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => span / each <= wanted);
  const first = Math.ceil(low / step - 1e-9);
  const ticks = [];
  for (let n = first; n * step <= high + step * 1e-9; n += 1) ticks.push(Number((n * step).toPrecision(12)));
  return ticks;
}

function timeTicks(from, to, wanted) {
  const step = (TIME_STEPS.find((each) => (to - from) / 1000 / each <= wanted) ?? TIME_STEPS.at(-1)) * 1000;
  const offset = new Date(from).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let t = Math.ceil((from - offset) / step) * step + offset; t <= to; t += step) ticks.push(t);
  return { ticks, step };
}

function timeLabel(ms, step) {
  const options = step >= 86_400_000 ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit" };
  if (step < 60_000) options.second = "2-digit";
  return new Intl.DateTimeFormat("en-GB", options).format(ms);
}

export class Chart {
  #box;
  #series = [];
  #span = [0, 1];
  #scales = null;
  #reading = null;
  #pick;

  /** `pick` is called with the name of a series that was clicked. */
  constructor(box, pick) {
    this.#box = box;
    this.#pick = pick;
    new ResizeObserver(() => this.#draw()).observe(box);
    box.addEventListener("pointermove", (event) => this.#read(event));
    box.addEventListener("pointerleave", () => this.#forget());
    box.addEventListener("click", (event) => {
      const found = this.#nearest(event);
      if (found) this.#pick(found.series.name);
    });
  }

  show(series, from, to) {
    this.#series = series.filter(({ points }) => points.length);
    this.#span = [from, to];
    this.#draw();
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#box;
    this.#box.replaceChildren();
    this.#scales = null;
    if (!this.#series.length || width < 80 || height < 60) return;
    let [low, high] = [Infinity, -Infinity];
    for (const { points } of this.#series) {
      for (const [, number] of points) {
        low = Math.min(low, number);
        high = Math.max(high, number);
      }
    }
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    [low, high] = [low - room, high + room];
    const [from, to] = this.#span;
    const x = (t) => MARGIN.left + ((t - from) / (to - from || 1)) * (width - MARGIN.left - MARGIN.right);
    const y = (v) => height - MARGIN.bottom - ((v - low) / (high - low)) * (height - MARGIN.top - MARGIN.bottom);
    this.#scales = { x, y };
    const svg = makeSvg("svg", { width, height, role: "img", "aria-label": "Numbers over time" });
    this.#axes(svg, { x, y, low, high, from, to, width, height });
    for (const { colour, points } of this.#series) {
      const path = points.map(([t, v], index) => `${index ? "L" : "M"}${x(t).toFixed(1)} ${y(v).toFixed(1)}`).join("");
      svg.append(makeSvg("path", { d: path, class: "line", stroke: colour }));
      const [t, v] = points.at(-1);
      svg.append(makeSvg("circle", { cx: x(t).toFixed(1), cy: y(v).toFixed(1), r: 2.5, fill: colour }));
    }
    this.#reading = makeSvg("g", { class: "reading" });
    svg.append(this.#reading);
    this.#box.append(svg);
  }

  #axes(svg, { x, y, low, high, from, to, width, height }) {
    for (const tick of niceTicks(low, high, Math.max(2, Math.floor(height / 45)))) {
      const top = y(tick).toFixed(1);
      svg.append(
        makeSvg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: top, y2: top, class: "grid" }),
        makeSvg("text", { x: MARGIN.left - 6, y: top, class: "tick value" }, quantity(tick)),
      );
    }
    const { ticks, step } = timeTicks(from, to, Math.max(2, Math.floor(width / 90)));
    for (const tick of ticks) {
      const left = x(tick).toFixed(1);
      svg.append(makeSvg("text", { x: left, y: height - 6, class: "tick time" }, timeLabel(tick, step)));
    }
  }

  #nearest({ clientX, clientY }) {
    if (!this.#scales) return null;
    const frame = this.#box.getBoundingClientRect();
    const [px, py] = [clientX - frame.left, clientY - frame.top];
    let [best, distance] = [null, 40 ** 2];
    for (const series of this.#series) {
      for (const [t, v] of series.points) {
        const [cx, cy] = [this.#scales.x(t), this.#scales.y(v)];
        const away = (cx - px) ** 2 + (cy - py) ** 2;
        if (away < distance) [best, distance] = [{ series, t, v, cx, cy }, away];
      }
    }
    return best;
  }

  #read(event) {
    const found = this.#nearest(event);
    this.#forget();
    if (!found || !this.#reading) return;
    const { series, t, v, cx, cy } = found;
    const left = cx > this.#box.clientWidth / 2;
    const below = cy < 40;
    this.#reading.append(
      makeSvg("circle", { cx, cy, r: 5, fill: series.colour }),
      makeSvg(
        "text",
        { x: left ? cx - 9 : cx + 9, y: below ? cy + 18 : cy - 18, "text-anchor": left ? "end" : "start" },
        makeSvg("tspan", { class: "strong" }, quantity(v)),
        makeSvg("tspan", { x: left ? cx - 9 : cx + 9, dy: 14 }, `${series.name}, ${moment(t)}`),
      ),
    );
  }

  #forget() {
    this.#reading?.replaceChildren();
  }
}
