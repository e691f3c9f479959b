// One live stream of events (server-sent events), handed on once per frame.
//
// EventSource connects again by itself and says where it was, so nothing is lost on the way;
// only an answer that is an error ends it, and then the reason is asked for once.

import { eventsUrl, getJson, readFeature } from "./api.js";

const MOST_WAITING = 5000; // while the page is hidden nothing is drawn

export class Stream extends EventTarget {
  #source = null;
  #waiting = [];
  #scheduled = false;
  status = "closed"; // "connecting", "live", "retrying" or "refused"
  reason = "";

  /** Follow what a question asks for instead of whatever was followed before. */
  open(question) {
    this.close();
    const source = new EventSource(eventsUrl(question));
    this.#source = source;
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
    if (this.#waiting.length > MOST_WAITING) this.#waiting.splice(0, MOST_WAITING / 2);
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
