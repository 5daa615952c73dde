"use strict";
// What makes the page better where scripts run; without them everything works by links and buttons.

const EVERY_MS = 10_000;

function isTouched(part) {
  return part.contains(document.activeElement) || part.querySelector("details[open], input:checked") !== null;
}

// Take the parts that live from a fresh copy of this page; what somebody works with stays as it is.
async function refresh() {
  if (document.hidden || document.querySelector("[data-live]") === null) return;
  let answer;
  try {
    answer = await fetch(location.href, { credentials: "same-origin", headers: { "X-Refresh": "1" } });
  } catch {
    return; // the page is away; the next look may find it
  }
  if (answer.redirected) return location.reload(); // the session is over
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (other && !isTouched(part)) part.replaceWith(document.importNode(other, true));
  }
  document.title = fresh.title;
  document.documentElement.dataset.refreshed = String(Number(document.documentElement.dataset.refreshed ?? 0) + 1);
}

// Addresses stay short: what is empty is not sent.
function leaveOutEmpty(form) {
  for (const field of form.elements) if (field.name && field.value === "") field.disabled = true;
}

for (const form of document.querySelectorAll("form.filters")) {
  form.addEventListener("submit", () => leaveOutEmpty(form));
  for (const choice of form.querySelectorAll("select")) choice.addEventListener("change", () => form.requestSubmit());
}
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form.filters :disabled")) field.disabled = false;
});

// One box chooses all lines; buttons wait until something is chosen.
for (const form of document.querySelectorAll("form.chosen")) {
  const boxes = () => form.querySelectorAll("tbody input[type=checkbox]");
  const weigh = () => {
    const none = ![...boxes()].some((box) => box.checked);
    for (const button of form.querySelectorAll(".act button")) button.disabled = none;
  };
  const corner = form.querySelector("thead th");
  if (corner && boxes().length) {
    const all = Object.assign(document.createElement("input"), { type: "checkbox", ariaLabel: "choose all" });
    all.addEventListener("change", () => { for (const box of boxes()) box.checked = all.checked; weigh(); });
    corner.append(all);
  }
  form.addEventListener("change", weigh);
  weigh();
}

// The reader's own clock, beside UTC.
document.addEventListener("mouseover", ({ target }) => {
  if (target.matches?.("time:not([data-local])")) {
    target.dataset.local = "1";
    target.title = `${target.title} ${new Date(target.dateTime).toLocaleString(undefined, { timeZoneName: "short" })}`.trim();
  }
});

document.documentElement.dataset.script = "runs";
setInterval(refresh, EVERY_MS);
addEventListener("focus", refresh);
