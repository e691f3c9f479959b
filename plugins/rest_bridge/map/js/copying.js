// What is on screen, in the words of those who do not look at a map: ready to copy.

import { eventsUrl } from "./api.js";
import { byId, icon, make } from "./dom.js";
import { shapeToText } from "./shapes.js";
import { state } from "./state.js";
import { toast } from "./toast.js";
import { conditionText } from "./topics.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The forms of a question: title, text and what it is for. */
function formsOf({ filter, geometry, from = null, to = null }) {
  const url = eventsUrl({ filter, geometry, from, to }).href;
  const live = eventsUrl({ filter, geometry }).href;
  const topic = geometry ? `$geo/intersects=${conditionText(geometry)}/${filter}` : filter;
  const flags = geometry ? ` --intersects ${quoted(geometry)}` : "";
  return [
    ["REST, from the log", url, "A GeoJSON FeatureCollection; add size=100 for the newest hundred."],
    ["REST, live", `curl -N -H 'Accept: text/event-stream' ${quoted(live)}`, "Events as they happen."],
    ["Topic for any MQTT client", topic, "Subscribe to it with a client that knows nothing of places."],
    ["Command line", `geomqtt sub -v -t ${quoted(filter)}${flags}`, "Prints what happens."],
    ["This view", location.href, "A link to this page as it is now."],
  ];
}

export class Copying {
  #question;

  constructor(question) {
    this.#question = question;
    byId("copy-scope").addEventListener("change", () => this.show());
  }

  show() {
    if (byId("panel-copy").hidden) return;
    byId("copy-scope").hidden = !state.shape;
    const drawn = state.shape && byId("copy-shape").checked;
    const question = this.#question();
    if (drawn) question.geometry = shapeToText(state.shape);
    const focused = document.activeElement?.dataset?.form;
    const forms = formsOf(question).map(([title, text, use]) => this.#form(title, text, use));
    byId("copy-forms").replaceChildren(...forms);
    if (focused) forms.find((form) => form.querySelector("button").dataset.form === focused)?.querySelector("button").focus();
  }

  #form(title, text, use) {
    return make(
      "li",
      {},
      make("h3", {}, title),
      make(
        "div",
        { class: "form" },
        make("code", { tabindex: "0" }, text),
        make(
          "button",
          { type: "button", class: "bare", "aria-label": `Copy: ${title}`, "data-form": title, on: { click: () => copy(text) } },
          icon("copy"),
        ),
      ),
      make("p", { class: "quiet" }, use),
    );
  }
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    // Only secure pages may write to the clipboard; elsewhere the text can be selected.
    toast("The browser does not allow it here: select the text and copy it.");
  }
}
