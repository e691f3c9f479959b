// Shows openapi.json, and lets the reader try the questions it describes.
// Everything from the server is set as text, never as markup.

const METHODS = ["get", "put", "delete"];
const SHOWN_CHARACTERS = 20000;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// `code` between backticks is the only mark in the description.
function prose(text) {
  const parts = text.split("`");
  return parts.map((part, index) => (index % 2 ? element("code", { textContent: part }) : part));
}

function kind(schema = {}) {
  const limits = [];
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.minimum !== undefined) limits.push(`≥ ${schema.minimum}`);
  if (schema.maximum !== undefined) limits.push(`≤ ${schema.maximum}`);
  return [schema.type, ...limits].join(", ");
}

function parameterTable(parameters) {
  const rows = parameters.map((each) =>
    element(
      "tr",
      {},
      element(
        "td",
        { className: "name" },
        element("code", { textContent: each.name }),
        each.required ? " *" : "",
      ),
      element("td", { textContent: kind(each.schema) }),
      element("td", {}, ...prose(each.description ?? "")),
    ),
  );
  const head = element(
    "tr",
    {},
    ...["Parameter", "Kind", "Meaning"].map((text) => element("th", { textContent: text })),
  );
  return element("div", { className: "table" }, element("table", {}, head, ...rows));
}

function answerTable(responses) {
  const rows = Object.entries(responses).map(([status, answer]) =>
    element(
      "tr",
      {},
      element("td", { className: "name", textContent: status }),
      element("td", { textContent: Object.keys(answer.content ?? {}).join(", ") }),
      element("td", {}, ...prose(answer.description)),
    ),
  );
  const head = element(
    "tr",
    {},
    ...["Answer", "Form", "Meaning"].map((text) => element("th", { textContent: text })),
  );
  return element("div", { className: "table" }, element("table", {}, head, ...rows));
}

function tryIt(path) {
  const first = path.replace("{topic}", "%23") + (path.includes("publish/") ? "?size=3" : "");
  const input = element("input", { value: first, spellcheck: false });
  const output = element("pre", { hidden: true });
  const button = element("button", { type: "submit", textContent: "Ask" });
  const form = element("form", {}, element("label", {}, "Try it", input), button, output);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    output.hidden = false;
    output.textContent = "…";
    try {
      const answer = await fetch(new URL(input.value, new URL("..", location.href)));
      const text = await answer.text();
      const cut = text.length > SHOWN_CHARACTERS ? "\n…" : "";
      output.textContent = `${answer.status} ${answer.headers.get("content-type") ?? ""}\n\n${text.slice(0, SHOWN_CHARACTERS)}${cut}`;
    } catch (error) {
      output.textContent = String(error);
    }
  });
  return form;
}

function operation(method, path, described) {
  const summary = element(
    "summary",
    {},
    element("span", { className: `method ${method}`, textContent: method }),
    element("code", { textContent: path }),
    element("span", { className: "what", textContent: described.summary }),
  );
  const details = element("details", {}, summary);
  if (described.parameters) details.append(parameterTable(described.parameters));
  details.append(answerTable(described.responses));
  if (method === "get") details.append(tryIt(path));
  return details;
}

function show(description) {
  const main = document.getElementById("operations");
  main.replaceChildren(element("p", {}, ...prose(description.info.description)));
  for (const tag of description.tags) {
    main.append(element("h2", { textContent: tag.description }));
    for (const [path, operations] of Object.entries(description.paths)) {
      for (const method of METHODS) {
        const described = operations[method];
        if (described?.tags.includes(tag.name)) main.append(operation(method, path, described));
      }
    }
  }
}

try {
  const answer = await fetch("../openapi.json");
  show(await answer.json());
} catch (error) {
  document.getElementById("operations").textContent = `openapi.json cannot be read: ${error}`;
}
