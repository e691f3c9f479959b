// Which colour an event has: by topic (so many levels of it), or by a number in its payload.

import { numberOf } from "./numbers.js";
import { state } from "./state.js";

// Told apart by most eyes, on light and on dark ground.
const PALETTE = [
  "#2f7ed8", "#e8743b", "#19a979", "#b55ac4", "#c9a227",
  "#13a4b4", "#ed4a7b", "#6c8893", "#7a5af8", "#7fa637",
];
const NO_NUMBER = "#94a3b3";
// Dark to bright, in order for eyes that see no colours too; never as dark as the night.
const RAMP = [[96, 72, 190], [48, 118, 205], [24, 162, 160], [112, 200, 88], [250, 222, 48]];
const MOST_GROUPS = 300;

const colours = new Map(); // group -> colour
const hidden = new Set(); // groups that shall not be seen
let range = null; // [low, high] of the numbers seen

/** The part of a topic that its colour stands for. */
export function groupOf(topic) {
  const levels = topic.split("/");
  return levels.length <= state.depth ? topic : levels.slice(0, state.depth).join("/");
}

export function groupColour(group) {
  let colour = colours.get(group);
  if (!colour) {
    if (colours.size >= MOST_GROUPS) colours.clear();
    colour = PALETTE[colours.size % PALETTE.length];
    colours.set(group, colour);
  }
  return colour;
}

export const isHidden = (group) => hidden.has(group);

export function toggleGroup(group) {
  if (!hidden.delete(group)) hidden.add(group);
}

export function forgetGroups() {
  colours.clear();
  hidden.clear();
}

export function visible(event) {
  return state.colour === "value" || !hidden.size || !hidden.has(groupOf(event.topic));
}

export function colourOf(event) {
  if (state.colour === "topic") return groupColour(groupOf(event.topic));
  const number = state.source ? numberOf(event, state.source) : undefined;
  return number === undefined || !range ? NO_NUMBER : rampColour(share(number));
}

/** Whether an event counts in this colouring. */
export function isColoured(event) {
  return state.colour === "topic" || (state.source && numberOf(event, state.source) !== undefined);
}

function share(number) {
  const [low, high] = range;
  return high > low ? Math.min(1, Math.max(0, (number - low) / (high - low))) : 0.5;
}

export function rampColour(where) {
  const place = where * (RAMP.length - 1);
  const index = Math.min(Math.floor(place), RAMP.length - 2);
  const mix = RAMP[index].map((from, i) => Math.round(from + (RAMP[index + 1][i] - from) * (place - index)));
  return `rgb(${mix.join(",")})`;
}

export const valueRange = () => range;

/** Fit the scale to what is there, without the outermost hundredth on either side. */
export function fitRange(events) {
  if (state.colour !== "value" || !state.source) return;
  const numbers = [];
  for (const event of events) {
    const number = numberOf(event, state.source);
    if (number !== undefined) numbers.push(number);
  }
  numbers.sort((a, b) => a - b);
  const cut = Math.floor(numbers.length / 100);
  range = numbers.length ? [numbers[cut], numbers[numbers.length - 1 - cut]] : null;
}
