// Keys that work anywhere on the page, except while somebody types.

const TYPING = "input:not([type=range], [type=checkbox], [type=radio]), textarea, select, [contenteditable]";

/** `bindings` has a function for a key, or for a key while drawing: { l() {}, … }. */
export function bindKeys(bindings, drawing, drawingBindings) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    if (drawing.active && drawingBindings[event.key]) {
      // Space and Enter on a button are meant for the button.
      if (event.target.closest("button") && event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      drawingBindings[event.key]();
      return;
    }
    if (event.target.closest(TYPING)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const act = bindings[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
