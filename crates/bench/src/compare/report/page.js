"use strict";
window.addEventListener("error", event => { document.documentElement.dataset.error = event.message; });
const bodies = document.querySelectorAll("tbody[data-metric]");
const buttons = document.querySelectorAll("button[data-metric]");
const show = metric => {
  bodies.forEach(body => { body.hidden = body.dataset.metric !== metric; });
  buttons.forEach(button => button.setAttribute("aria-pressed", button.dataset.metric === metric));
};
buttons.forEach(button => button.addEventListener("click", () => show(button.dataset.metric)));
if (buttons.length) {
  document.body.classList.add("scripted");
  show(buttons[0].dataset.metric);
}
// What goes on to the side says so: style sheets fade its edge and show a hint.
const boxes = document.querySelectorAll("nav, .choice, .scroll");
const edges = box => {
  const left = box.scrollLeft > 2, right = box.scrollLeft + box.clientWidth < box.scrollWidth - 2;
  box.dataset.more = [left ? "left" : "", right ? "right" : ""].join(" ").trim();
  box.classList.toggle("wide", box.scrollWidth > box.clientWidth + 2);
};
const allEdges = () => boxes.forEach(edges);
boxes.forEach(box => box.addEventListener("scroll", () => edges(box), {passive: true}));
buttons.forEach(button => button.addEventListener("click", allEdges));
window.addEventListener("resize", allEdges);
allEdges();
document.querySelectorAll("figure").forEach(figure =>
  figure.addEventListener("click", () => figure.classList.toggle("large")));
document.documentElement.dataset.ready = "yes";
