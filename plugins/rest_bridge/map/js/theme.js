// Light or dark: as the system has it, until somebody chooses.

const KEY = "geomqtt-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = [];

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage may be forbidden: then the choice lasts as long as the page
  }
}

let chosen = stored();

export const theme = () => chosen ?? (system.matches ? "dark" : "light");

function apply() {
  document.documentElement.dataset.theme = theme();
  for (const listener of listeners) listener();
}

export function onTheme(listener) {
  listeners.push(listener);
}

export function toggleTheme() {
  chosen = theme() === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // As above.
  }
  apply();
}

/** The colours that canvases need, from the style sheet. */
export function colourTokens(...names) {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--map-${name}`).trim()]));
}

system.addEventListener("change", apply);
apply();
