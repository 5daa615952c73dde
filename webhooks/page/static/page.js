"use strict";
// What makes the page better where scripts run; without them everything works by links and buttons.

const EVERY_MS = 10_000;

function isTouched(part) {
  return part.contains(document.activeElement) || part.querySelector("details[open], input:checked") !== null;
}

let asOf = new Date();

// What could not be brought up to date is said, and not shown as if it were.
function tellStale(why) {
  const told = document.getElementById("stale");
  if (!why) return told?.remove();
  const line = told ?? Object.assign(document.createElement("p"), { id: "stale", className: "told fault", role: "status" });
  line.textContent = `as of ${asOf.toISOString().slice(11, 19)} UTC, and not brought up to date since: ${why}`;
  document.querySelector("main").prepend(line);
}

// Take the parts that live from a fresh copy of this page; what somebody works with stays as it is.
async function refresh() {
  if (document.hidden || document.querySelector("[data-live]") === null) return;
  let answer;
  try {
    answer = await fetch(location.href, { credentials: "same-origin", headers: { "X-Refresh": "1" } });
  } catch {
    return tellStale("the dashboard does not answer");
  }
  if (answer.redirected) return location.reload(); // the session is over
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok) return tellStale(fresh.querySelector("[role=alert]")?.textContent ?? `status ${answer.status}`);
  asOf = new Date();
  tellStale("");
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (other && !isTouched(part)) part.replaceWith(document.importNode(other, true));
  }
  document.querySelectorAll("form.chosen").forEach(offerAll);
  document.title = fresh.title;
  document.documentElement.dataset.refreshed = String(Number(document.documentElement.dataset.refreshed ?? 0) + 1);
}

// Addresses stay short: what is empty is not sent.
function leaveOutEmpty(form) {
  for (const field of form.elements) if (field.name && field.value === "") field.disabled = true;
}

for (const form of document.querySelectorAll("form.filters")) {
  form.addEventListener("submit", () => leaveOutEmpty(form));
  for (const choice of form.querySelectorAll("select, [type=checkbox]")) choice.addEventListener("change", () => form.requestSubmit());
}
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("[data-sent]")) delete form.dataset.sent;
  for (const field of document.querySelectorAll("form.filters :disabled")) field.disabled = false;
});

// One box chooses all lines; buttons wait until something is chosen.
const boxes = (form) => [...form.querySelectorAll("tbody input[type=checkbox]")];
function weigh(form) {
  const none = !boxes(form).some((box) => box.checked);
  for (const button of form.querySelectorAll(".act button")) button.disabled = none;
}
function offerAll(form) {
  const corner = form.querySelector("thead th");
  if (corner === null || corner.hasChildNodes() || boxes(form).length === 0) return;
  const all = Object.assign(document.createElement("input"), { type: "checkbox", ariaLabel: "choose all" });
  all.addEventListener("change", () => { for (const box of boxes(form)) box.checked = all.checked; });
  corner.append(all);
}
for (const form of document.querySelectorAll("form.chosen")) {
  offerAll(form);
  form.addEventListener("change", () => weigh(form));
  weigh(form);
}

// A second click while the first is under way would do the same again.
addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "1";
  setTimeout(() => delete form.dataset.sent, EVERY_MS);
});

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
