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
document.querySelectorAll("figure").forEach(figure =>
  figure.addEventListener("click", () => figure.classList.toggle("large")));
document.documentElement.dataset.ready = "yes";
