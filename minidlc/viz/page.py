"""Style and script of the pass page: what stands between the tags of viz/passes.py.

Reads and writes nothing; plain CSS and 25 lines of JavaScript, no library, no network. Treated in
course chapter 02_frontend_opt.
"""

STYLE = """
* { box-sizing: border-box }
body { margin: 0; padding: 16px 24px; font: 16px/1.4 "DejaVu Sans", Verdana, sans-serif;
  background: var(--minidlc-page); color: var(--minidlc-text) }
h1 { font-size: 26px; margin: 0 0 16px }
main { display: grid; grid-template-columns: 300px minmax(0, 1fr); gap: 24px }
ol { list-style: none; margin: 0; padding: 0 }
button { display: grid; grid-template-columns: 1fr auto; width: 100%; text-align: left; gap: 0 8px;
  font: inherit; color: inherit; background: none; border: 1px solid transparent;
  border-left: 6px solid transparent; padding: 6px 10px; cursor: pointer }
button b { grid-column: 1 / 3 }
button[aria-current] { background: var(--minidlc-frame); border-color: var(--minidlc-frame-edge) }
input { width: 100%; margin-top: 12px }
figure { margin: 0 0 16px; border: 1px solid var(--minidlc-grid) }
figure svg { display: block; width: 100%; height: auto }
details { margin: 8px 0 } summary { cursor: pointer } .hint { color: var(--minidlc-muted) }
@media (max-width: 900px) { main { grid-template-columns: 1fr } }
"""

SCRIPT = """
const buttons = [...document.querySelectorAll("button[data-step]")];
const sections = [...document.querySelectorAll("section[data-step]")];
const slider = document.querySelector("input[type=range]");
let current = 0;
function show(step) {
  current = Math.max(0, Math.min(sections.length - 1, step));
  sections.forEach((s, n) => { s.hidden = n !== current; });
  buttons.forEach((b, n) => {
    if (n === current) b.setAttribute("aria-current", "step");
    else b.removeAttribute("aria-current");
  });
  slider.value = current;
}
buttons.forEach((b, n) => b.addEventListener("click", () => show(n)));
slider.addEventListener("input", () => show(Number(slider.value)));
document.addEventListener("keydown", event => {
  const move = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  if (move) { event.preventDefault(); show(current + move); }
});
show(0);
"""
