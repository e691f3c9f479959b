"use strict";
// The theme switch, and the note under the pointer for every mark with data-tip.

(() => {
  const root = document.documentElement;
  const remembered = (() => {
    try { return localStorage.getItem("geomqtt-theme"); } catch { return null; }
  })();
  if (remembered) root.dataset.theme = remembered;
  document.getElementById("theme").addEventListener("click", () => {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const next = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    root.dataset.theme = next;
    // A page opened from a file may not be allowed to remember anything.
    try { localStorage.setItem("geomqtt-theme", next); } catch { /* then it is for now only */ }
    document.dispatchEvent(new Event("themechange"));
  });
})();

function showTip(text, event) {
  const tip = document.getElementById("tip");
  tip.textContent = text;
  tip.style.opacity = text ? 1 : 0;
  if (!text) return;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 18;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below + box.height > innerHeight ? event.clientY - box.height - 12 : below}px`;
}

document.addEventListener("pointermove", (event) => {
  if (event.target.id === "canvas") return;
  const mark = event.target.closest?.("[data-tip]");
  showTip(mark ? mark.dataset.tip : "", event);
});
