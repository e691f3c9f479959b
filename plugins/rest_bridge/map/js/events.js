// The events the page holds: the newest of all, and per topic and client the way it went.
//
// There is room for so many events and no more; the oldest go first. A track is what one
// client told on one topic, oldest first.

export const ROOM = 6000;

// An event has one id in the log and another while it happens: what it says tells them apart.
const identity = ({ received, client, topic, lon, lat, payload }) =>
  [received, client, topic, lon, lat, payload].join("\n");
const trackKey = (event) => `${event.client}\n${event.topic}`;

export class Events extends EventTarget {
  #queue = []; // oldest first; what lies before #first is gone already
  #first = 0;
  #known = new Set();
  tracks = new Map(); // key -> events, oldest first

  get size() {
    return this.#queue.length - this.#first;
  }

  *[Symbol.iterator]() {
    for (let index = this.#first; index < this.#queue.length; index += 1) yield this.#queue[index];
  }

  /** The newest events, newest first. */
  newest(limit) {
    return this.#queue.slice(Math.max(this.#first, this.#queue.length - limit)).reverse();
  }

  /** Add events in the order in which they happened; those already here are left out. */
  add(events) {
    const fresh = [];
    for (const event of events) {
      const self = identity(event);
      if (this.#known.has(self)) continue;
      this.#known.add(self);
      fresh.push(event);
      this.#queue.push(event);
      const key = trackKey(event);
      const track = this.tracks.get(key);
      if (track) track.push(event);
      else this.tracks.set(key, [event]);
    }
    while (this.size > ROOM) this.#dropOldest();
    if (this.#first > ROOM) {
      this.#queue.splice(0, this.#first);
      this.#first = 0;
    }
    if (fresh.length) this.dispatchEvent(new CustomEvent("change", { detail: fresh }));
  }

  #dropOldest() {
    const event = this.#queue[this.#first];
    this.#queue[this.#first] = undefined;
    this.#first += 1;
    this.#known.delete(identity(event));
    const key = trackKey(event);
    const track = this.tracks.get(key);
    track.shift();
    if (!track.length) this.tracks.delete(key);
  }

  /** Hold these events and no others, in the order in which they happened. */
  replace(events) {
    this.#queue = [];
    this.#first = 0;
    this.#known.clear();
    this.tracks.clear();
    this.add(events.toSorted((a, b) => a.start - b.start));
    if (!this.size) this.dispatchEvent(new CustomEvent("change", { detail: [] }));
  }

  clear() {
    this.replace([]);
  }
}
