// Each submission is a tbody: its row, and its details below. Sorting moves the bodies, filtering hides them.
const root = document.documentElement;
const table = document.getElementById("submissions");
const filter = document.getElementById("filter");
const shown = document.getElementById("shown");
const headings = Array.from(table.tHead.rows[0].cells);
const state = { words: "", kinds: new Set(), column: "", descending: false };
let bodies = Array.from(table.tBodies);

function key(body, column) {
  const cell = body.rows[0].cells[column];
  return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort);
}

function sorted(list) {
  const column = headings.findIndex((heading) => heading.dataset.column === state.column);
  if (column < 0) return list;
  return Array.from(list).sort((a, b) => {
    const x = key(a, column), y = key(b, column);
    const order = typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true });
    return state.descending ? -order : order;
  });
}

// A body in its place is not touched: a moved element loses the positions of its scrolled parts.
function place(list) {
  let last = table.tHead;
  for (const body of list) {
    if (last.nextElementSibling !== body) last.after(body);
    last = body;
  }
}

function apply() {
  for (const heading of headings) {
    heading.removeAttribute("aria-sort");
    if (heading.dataset.column === state.column) heading.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
  }
  // A kind without a chip is ignored: no control could unset it.
  const pressed = new Set();
  for (const chip of document.querySelectorAll("#chips button")) {
    const isPressed = state.kinds.has(chip.dataset.kind);
    chip.setAttribute("aria-pressed", String(isPressed));
    if (isPressed) pressed.add(chip.dataset.kind);
  }
  const wanted = state.words.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const body of bodies) {
    const text = Array.from(body.rows[0].cells, (cell) => cell.textContent).join(" ").toLowerCase();
    const chosen = pressed.size === 0 || pressed.has(body.dataset.kind);
    body.hidden = !chosen || !wanted.every((word) => text.includes(word));
    if (!body.hidden) count += 1;
  }
  shown.textContent = `${count} of ${bodies.length}`;
}

// The fragment of the address holds the view, so that a link shows the same rows in the same order.
function remember() {
  const said = new URLSearchParams();
  if (state.words) said.set("show", state.words);
  for (const kind of state.kinds) said.append("kind", kind);
  if (state.column) said.set("sort", (state.descending ? "-" : "") + state.column);
  const text = said.toString();
  history.replaceState(null, "", text ? `#f/${text}` : location.pathname + location.search);
}

function recall(text) {
  const said = new URLSearchParams(text);
  const sort = said.get("sort") || "";
  state.words = filter.value = said.get("show") || "";
  state.kinds = new Set(said.getAll("kind"));
  state.descending = sort.startsWith("-");
  state.column = sort.replace(/^-/, "");
  place(sorted(bodies));
  apply();
}

function sortBy(column) {
  state.descending = state.column === column && !state.descending;
  state.column = column;
  place(sorted(bodies));
  apply();
  remember();
}

for (const heading of headings) {
  heading.tabIndex = 0;
  heading.addEventListener("click", () => sortBy(heading.dataset.column));
  heading.addEventListener("keydown", (event) => { if (event.key === "Enter") sortBy(heading.dataset.column); });
}
document.getElementById("chips").addEventListener("click", (event) => {
  const kind = event.target.dataset.kind;
  if (kind === undefined) return;
  if (!state.kinds.delete(kind)) state.kinds.add(kind);
  apply();
  remember();
});
filter.addEventListener("input", () => {
  state.words = filter.value.trim();
  apply();
  remember();
});

// The page has each reference once. Opened details show a copy beside the submission's code.
function compare(details) {
  const beside = details.querySelector(".beside");
  if (!beside || beside.childElementCount) return;
  const reference = document.getElementById(beside.dataset.reference);
  if (!reference) return;
  const title = document.createElement("h3");
  title.textContent = "Reference";
  beside.append(title, reference.querySelector(".code").cloneNode(true));
}

function unfold(details) {
  compare(details);
  for (const pre of details.querySelectorAll(".code pre")) colour(pre);
}

document.addEventListener("toggle", (event) => { if (event.target.open) unfold(event.target); }, true);

// A link to a submission opens its details.
function follow() {
  const wanted = location.hash.slice(1);
  if (wanted.startsWith("f/")) return recall(wanted.slice(2));
  const body = document.getElementById(wanted);
  if (!body) return;
  for (let part = body.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  if (!bodies.includes(body)) return body.scrollIntoView();
  body.hidden = false;
  const details = body.querySelector("details");
  if (details) details.open = true;
  body.scrollIntoView();
}

// A live page asks its server for news, and takes over new and changed parts. What a reader chose and opened stays.
function swap(fresh, id) {
  const before = document.getElementById(id);
  const after = fresh.getElementById(id);
  for (const open of before.querySelectorAll("details[open]")) {
    const same = fresh.getElementById(open.id);
    if (same) same.open = true;
  }
  before.replaceWith(after);
  return after;
}

function take(fresh) {
  const known = new Map(bodies.map((body) => [body.id, body]));
  const seen = bodies.find((body) => !body.hidden && body.getBoundingClientRect().bottom > 0);
  const isAbove = table.getBoundingClientRect().top >= 0;
  const top = seen ? seen.getBoundingClientRect().top : 0;
  for (const id of ["summary", "notes", "rest"]) swap(fresh, id);
  document.getElementById("chips").replaceChildren(...fresh.getElementById("chips").children);
  // The collection shrinks when a body moves to this page.
  bodies = Array.from(fresh.getElementById("submissions").tBodies).map((body) => {
    const before = known.get(body.id);
    known.delete(body.id);
    if (!before) return body;
    if (before.dataset.made === body.dataset.made) return before;
    const details = body.querySelector("details");
    before.replaceWith(body);
    if (details && before.querySelector("details[open]")) {
      details.open = true;
      unfold(details);
    }
    return body;
  });
  for (const gone of known.values()) gone.remove();
  place(sorted(bodies));
  apply();
  const now = seen && document.getElementById(seen.id);
  if (now && !isAbove) scrollBy(0, now.getBoundingClientRect().top - top);
  root.dataset.version = fresh.documentElement.dataset.version;
}

async function text(place) {
  const answer = await fetch(place, { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.text();
}

async function watch() {
  const live = document.getElementById("live");
  try {
    if (!document.hidden && (await text("version")) !== root.dataset.version) {
      take(new DOMParser().parseFromString(await text("."), "text/html"));
    }
    live.textContent = "live";
  } catch {
    live.textContent = "not live: the server does not answer";
  }
  setTimeout(watch, 2000);
}

window.addEventListener("hashchange", follow);
apply();
follow();
if (root.dataset.version) watch();
