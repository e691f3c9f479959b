// One live stream of events (server-sent events), handed on once per frame.
//
// EventSource connects again by itself and says where it was, so nothing is lost on the way;
// only an answer that is an error ends it, and then the reason is asked for once.

import { eventsUrl, getJson, readFeature } from "./api.js";
import { ROOM } from "./events.js";


export class Stream extends EventTarget {
  #source = null;
  #question = null;
  #waiting = [];
  #scheduled = false;
  arrived = 0; // since it was opened
  status = "closed"; // "connecting", "live", "retrying" or "refused"
  reason = "";

  constructor() {
    super();
    // A page that was left is kept for the way back, and its connection with it; a browser
    // has six of them for all pages of a broker.
    window.addEventListener("pagehide", () => this.#source?.close());
    window.addEventListener("pageshow", ({ persisted }) => {
      if (persisted && this.#source) this.open(this.#question);
    });
  }

  /** Follow what a question asks for instead of whatever was followed before. */
  open(question) {
    this.close();
    const source = new EventSource(eventsUrl(question));
    this.#source = source;
    this.#question = question;
    this.arrived = 0;
    this.#say("connecting");
    source.addEventListener("open", () => this.#say("live"));
    source.addEventListener("message", (message) => this.#take(message));
    source.addEventListener("error", () => {
      if (source !== this.#source) return;
      if (source.readyState === EventSource.CLOSED) this.#explain(question);
      else this.#say("retrying");
    });
  }

  close() {
    this.#source?.close();
    this.#source = null;
    this.#waiting = [];
    this.#say("closed");
  }

  refuse(reason) {
    this.close();
    this.#say("refused", reason);
  }

  #say(status, reason = "") {
    if (status === this.status && reason === this.reason) return;
    this.status = status;
    this.reason = reason;
    this.dispatchEvent(new Event("status"));
  }

  async #explain(question) {
    const source = this.#source;
    this.#say("retrying");
    try {
      await getJson(eventsUrl({ ...question, size: 1 }));
      if (source === this.#source) setTimeout(() => source === this.#source && this.open(question), 2000);
    } catch (problem) {
      if (source !== this.#source) return;
      if (problem.status) this.#say("refused", problem.message);
      else setTimeout(() => source === this.#source && this.open(question), 2000);
    }
  }

  #take(message) {
    this.#waiting.push(readFeature(JSON.parse(message.data)));
    this.arrived += 1;
    // Hidden pages get no frames, and nobody has room for more than the newest.
    if (this.#waiting.length >= 2 * ROOM) this.#waiting.splice(0, ROOM);
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      const events = this.#waiting;
      this.#waiting = [];
      if (events.length) this.dispatchEvent(new CustomEvent("events", { detail: events }));
    });
  }
}
