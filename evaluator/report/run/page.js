"use strict";
// Each submission is a tbody: its row, and its details below it. Sorting moves these, filtering hides them.
const table = document.getElementById("submissions");
const bodies = Array.from(table.tBodies);
const filter = document.getElementById("filter");
const shown = document.getElementById("shown");

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
  let count = 0;
  for (const body of bodies) {
    const text = Array.from(body.rows[0].cells, (cell) => cell.textContent).join(" ").toLowerCase();
    body.hidden = !wanted.every((word) => text.includes(word));
    if (!body.hidden) count += 1;
  }
  shown.textContent = `${count} of ${bodies.length}`;
}

Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
  heading.tabIndex = 0;
  heading.addEventListener("click", () => sort(heading, column));
  heading.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(heading, column); });
});
filter.addEventListener("input", narrow);
narrow();
