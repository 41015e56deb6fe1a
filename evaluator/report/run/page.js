"use strict";
// Each submission is a tbody: its row, and its details below it. Sorting moves these, filtering hides them.
const table = document.getElementById("submissions");
const bodies = Array.from(table.tBodies);
const filter = document.getElementById("filter");
const shown = document.getElementById("shown");
const chips = Array.from(document.querySelectorAll("#chips button"));

function key(body, column) {
  const cell = body.rows[0].cells[column];
  return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort);
}

function sort(heading, column) {
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  bodies.sort((a, b) => {
    const x = key(a, column), y = key(b, column);
    const order = typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true });
    return descending ? -order : order;
  });
  table.append(...bodies);
}

function narrow() {
  const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const pressed = chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.status);
  let count = 0;
  for (const body of bodies) {
    const text = Array.from(body.rows[0].cells, (cell) => cell.textContent).join(" ").toLowerCase();
    const chosen = pressed.length === 0 || pressed.includes(body.rows[0].cells[3].textContent);
    body.hidden = !chosen || !wanted.every((word) => text.includes(word));
    if (!body.hidden) count += 1;
  }
  shown.textContent = `${count} of ${bodies.length}`;
}

Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
  heading.tabIndex = 0;
  heading.addEventListener("click", () => sort(heading, column));
  heading.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(heading, column); });
});
// A link to a submission opens its details.
function follow() {
  const body = document.getElementById(location.hash.slice(1));
  if (!body || !bodies.includes(body)) return;
  body.hidden = false;
  const details = body.querySelector("details");
  if (details) details.open = true;
  body.scrollIntoView();
}

for (const chip of chips) {
  chip.addEventListener("click", () => {
    chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
    narrow();
  });
}
filter.addEventListener("input", narrow);
window.addEventListener("hashchange", follow);
narrow();
follow();
