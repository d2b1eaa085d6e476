// The grid of a store's runs: what a row says, filter, order, ticks and keys.
//
// Rows have one height, so that only those in view are in the document, however many runs there are.

const ROW = 36;
const MOST_COMPARED = 8;
/** Ids that nobody chose; a run with such an id is called by its agent. */
const MADE_UP = /^[0-9a-f]{12}$/;

// What a row says ------------------------------------------------------------------------------------------------------------

/** Shape, tone and words of states that only a stored run has; the others are those of the page. */
const OF_STORES = { unknown: ["ring", "warn", "unknown"], damaged: ["cross", "bad", "cannot be read"] };

/** Make a row of the grid from the values of a run: with shape, tone and words of its state, and the text that the filter reads. */
function gridRow(fields, values) {
  const row = Object.fromEntries(fields.map((name, place) => [name, values[place]]));
  const end = { kind: row.terminated ? "terminated" : "truncated", stop_reason: row.stop_reason };
  row.look = OF_STORES[row.state] || stateOf({ state: row.state, end });
  row.why = words(row.stop_reason);
  row.outcome = row.why || row.look[2];
  const named = !MADE_UP.test(row.id);
  row.name = named ? row.id : row.agent || row.id;
  row.beside = [named && !row.id.includes("#") ? row.agent : "", row.origin].filter(Boolean).join(", ");
  row.experiment = row.id.includes("#") ? row.id.slice(0, row.id.indexOf("#")) : "";
  row.text = [row.agent, row.model, row.prompt, row.outcome, row.look[2], row.id, row.origin, row.waits_for.join(" ")]
    .join("\n")
    .toLowerCase();
  return row;
}

const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

/** When a run began: the time of a run of today, else its day, with the time while there is no year to say. */
function started(at) {
  const date = new Date(1000 * at);
  const now = new Date();
  if (date.toDateString() === now.toDateString()) return `today ${CLOCK.format(date)}`;
  const day = DAY.format(date);
  return date.getFullYear() === now.getFullYear() ? `${day.slice(0, -5)} ${CLOCK.format(date)}` : day;
}

/**
 * The columns: `of` is what is sorted by, `cell` what is shown. Numbers are sorted the largest first. `width` is in px; without one, a
 * column is as wide as its longest text, up to `most`, and the prompt takes what is left.
 */
const GRID = [
  { name: "name", label: "Run", most: 340, cell: (row) => [make("bdi", {}, row.name), row.beside && make("small", {}, ` ${row.beside}`)] },
  { name: "model", label: "Model", most: 190 },
  { name: "prompt", label: "Prompt", width: 150 },
  {
    name: "state",
    label: "State",
    most: 180,
    of: (row) => row.look[2],
    cell: (row) => [mark(row.look[0], row.look[1]), ` ${row.look[2]}`],
  },
  { name: "why", label: "Why it ended", most: 170 },
  { name: "steps", label: "Steps", width: 64, number: count },
  { name: "tokens", label: "Tokens", width: 76, number: count },
  { name: "cost_usd", label: "Cost", width: 88, number: dollars },
  { name: "elapsed_s", label: "Time", width: 82, number: seconds },
  { name: "score", label: "Score", width: 64, number: (value) => (known(value) ? String(Number(value.toPrecision(4))) : "none") },
  { name: "begun_at", label: "Started", width: 118, number: started },
];

/** The columns that are left out, in this order, where there is no room for all of them. A row's tooltip has what they say. */
const LEFT_OUT = ["model", "elapsed_s", "steps", "score", "why", "tokens", "cost_usd", "begun_at"];

const COLLATOR = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Return the rows in the order of a column; what is unknown is always last. */
function sorted(rows, { by, down }) {
  const column = GRID.find((one) => one.name === by);
  const value = column.of || ((row) => row[by]);
  const empty = (one) => one === null || one === undefined || one === "";
  const compareValues = column.number ? (a, b) => a - b : COLLATOR.compare;
  return rows.slice().sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (empty(a) || empty(b)) return empty(a) - empty(b);
    return down ? compareValues(b, a) : compareValues(a, b);
  });
}

// The grid -------------------------------------------------------------------------------------------------------------------

/**
 * Return the grid. `take(listing)` shows what a store holds. `onOpen(rows)` opens runs; `onRefresh` is null in a file, where only the
 * runs in `listing.held` can be opened.
 */
function makeGrid({ onOpen, onRefresh }) {
  let rows = [];
  let shown = [];
  let listing = { held: null };
  let columns = GRID; // those for which there is room
  let widths = new Map(); // of the longest text in each column
  let current = null; // the id of the row that keys act on
  const order = { by: "begun_at", down: true };
  const chosen = { outcome: "", model: "", experiment: "" };
  const ticked = new Set();
  const nodes = new Map();
  const canOpen = (row) => listing.held === null || Object.hasOwn(listing.held, row.id);

  const title = make("h1", {});
  const input = make("input", {
    type: "search",
    placeholder: "Filter",
    "aria-label": "Filter the runs",
    oninput: () => redraw(),
  });
  const selects = ["model", "experiment"].map((name) =>
    make("select", { "aria-label": { model: "Model", experiment: "Experiment" }[name], "data-name": name, onchange: choose }),
  );
  const number = make("span", { class: "page-quiet", role: "status" });
  const refresh = make("button", { type: "button", class: "page-button", onclick: onRefresh }, "Refresh");
  refresh.hidden = !onRefresh;
  const chips = make("div", { class: "page-chips", role: "group", "aria-label": "State, or why it ended" });
  const heads = GRID.map((column, place) => {
    const button = make(
      "button",
      { type: "button", onclick: () => sortBy(column) },
      column.label,
      make("i", { "aria-hidden": "true" }),
    );
    const kind = `page-cell ${column.name} ${column.number ? "number" : ""}`;
    return make("div", { role: "columnheader", class: kind, "aria-colindex": place + 2 }, button);
  });
  const tickHead = make(
    "div",
    { role: "columnheader", class: "page-cell tick", "aria-colindex": 1 },
    make("span", { class: "page-unseen" }, "Compare"),
  );
  const head = make("div", { role: "row", class: "page-grid-head", "aria-rowindex": 1 }, tickHead, heads);
  const body = make("div", { role: "rowgroup", class: "page-grid-body" });
  const table = make(
    "div",
    { role: "grid", "aria-label": "Runs", "aria-multiselectable": "true", "aria-colcount": GRID.length + 1 },
    make("div", { role: "rowgroup", class: "page-grid-heads" }, head),
    body,
  );
  const empty = make("div", { class: "page-grid-empty" });
  const scroller = make("div", { class: "page-grid", onscroll: drawRows, onkeydown: keys }, table, empty);
  const compareButton = make("button", { type: "button", class: "page-button", onclick: compareTicked }, "Compare");
  const clear = make("button", { type: "button", class: "page-button", onclick: untick }, "Clear");
  const ticks = make("span", { role: "status" });
  const hint = make("span", { class: "page-quiet" });
  const about = make("span", { class: "page-quiet" });
  const node = make(
    "div",
    { class: "page-browse", onkeydown: toFilter },
    make("div", { class: "page-browse-head" }, title, input, selects, number, refresh),
    chips,
    scroller,
    make("div", { class: "page-browse-foot" }, compareButton, clear, ticks, hint, about),
  );
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") focusRow(0);
    else if (event.key === "Escape" && input.value) [input.value] = [""];
    else return;
    event.preventDefault();
    if (event.key === "Escape") redraw();
  });
  new ResizeObserver(() => {
    fit();
    drawRows();
  }).observe(scroller);

  // Columns: those for which there is room.

  function measure() {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `600 13px ${getComputedStyle(scroller).fontFamily}`;
    const width = (text) => pen.measureText(text || "").width;
    const widthIn = ({ name, of }, row) => (name === "name" ? width(row.name) + 0.85 * width(` ${row.beside}`) : width(of ? of(row) : row[name]));
    const widest = (column) => rows.reduce((most, row) => Math.max(most, widthIn(column, row)), width(`${column.label} \u2193`));
    widths = new Map(GRID.filter((column) => column.most).map((column) => [column.name, 21 + widest(column)]));
    widths.set("state", widths.get("state") + 18); // its mark
  }

  function fit() {
    const room = scroller.clientWidth - 48; // without the ticks and the edge
    if (room <= 0) return;
    const widthOf = ({ name, width, most }) => width || Math.ceil(Math.min(widths.get(name), most, 0.42 * room));
    const sum = (some) => some.reduce((all, one) => all + widthOf(one), 0);
    const all = GRID.filter((one) => one.name !== "score" || rows.some((row) => known(row.score)));
    let fitting = all;
    for (const name of LEFT_OUT) if (sum(fitting) > room) fitting = fitting.filter((one) => one.name !== name);
    const template = fitting.map((one) => (one.name === "prompt" ? "minmax(0, 1fr)" : `${widthOf(one)}px`));
    scroller.style.setProperty("--columns", ["40px", ...template].join(" "));
    const left = all.filter((one) => !fitting.includes(one)).map((one) => one.label);
    const names = left.length > 1 ? `${left.slice(0, -1).join(", ")} and ${left.at(-1)}` : left[0];
    hint.textContent = left.length ? `No room for ${names}: point at a row to read them.` : "";
    if (fitting.map((one) => one.name).join() === columns.map((one) => one.name).join()) return;
    columns = fitting;
    heads.forEach((head, place) => (head.hidden = !columns.includes(GRID[place])));
    for (const one of nodes.values()) one.row = null; // each is drawn anew
  }

  // What is shown: filter, facets, order.

  const passes = (row, without = "") =>
    Object.entries(chosen).every(([name, value]) => name === without || !value || row[name] === value) && row.found;

  function redraw({ keepPlace = false } = {}) {
    for (const { dataset } of selects) if (!rows.some((row) => row[dataset.name] === chosen[dataset.name])) chosen[dataset.name] = "";
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.found = wanted.every((word) => row.text.includes(word));
    shown = sorted(
      rows.filter((row) => passes(row)),
      order,
    );
    shown.forEach((row, place) => (row.place = place));
    drawFacets();
    heads.forEach((one, place) => {
      const { name } = GRID[place];
      if (name === order.by) one.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else one.removeAttribute("aria-sort");
    });
    number.textContent =
      shown.length === rows.length ? plural(rows.length, "run") : `${count(shown.length)} of ${plural(rows.length, "run")}`;
    table.setAttribute("aria-rowcount", shown.length + 1);
    body.style.height = `${shown.length * ROW}px`;
    table.hidden = !shown.length;
    empty.hidden = Boolean(shown.length);
    empty.replaceChildren(...(rows.length ? [make("p", {}, "No run matches.")] : howToFill(onRefresh)));
    if (!shown.some((row) => row.id === current)) current = shown[0]?.id ?? null;
    if (!keepPlace) scroller.scrollTop = 0;
    drawRows();
    drawFoot();
  }

  /** Each facet counts the runs that pass the filter and the other facets. */
  function drawFacets() {
    const outcomes = new Map();
    const found = rows.filter((row) => passes(row, "outcome"));
    for (const row of found) outcomes.set(row.outcome, [(outcomes.get(row.outcome)?.[0] || 0) + 1, row.look]);
    if (chosen.outcome && !outcomes.has(chosen.outcome)) {
      outcomes.set(chosen.outcome, [0, rows.find((row) => row.outcome === chosen.outcome)?.look || OF_STORES.unknown]);
    }
    const kinds = [...outcomes].sort(([, [a]], [, [b]]) => b - a);
    const facet = (value, label, number, look) =>
      make(
        "button",
        {
          type: "button",
          class: "page-chip",
          "aria-pressed": String(chosen.outcome === value),
          "data-value": value,
          onclick: press,
        },
        look && mark(look[0], look[1]),
        make("span", {}, label),
        make("small", {}, count(number)),
      );
    const focused = chips.querySelector(":focus")?.dataset.value;
    chips.replaceChildren(
      facet("", "All", found.length),
      ...kinds.map(([value, [number, look]]) => facet(value, value, number, look)),
    );
    if (focused !== undefined) [...chips.children].find((one) => one.dataset.value === focused)?.focus();
    chips.hidden = !rows.length;
    for (const select of selects) {
      const { name } = select.dataset;
      const values = [...new Set(rows.map((row) => row[name]).filter(Boolean))].sort(COLLATOR.compare);
      select.hidden = values.length < (name === "model" ? 2 : 1);
      select.replaceChildren(
        make("option", { value: "" }, `Any ${name}`),
        ...values.map((one) => make("option", { value: one }, one)),
      );
      select.value = chosen[name];
    }
  }

  function press(event) {
    chosen.outcome = event.currentTarget.dataset.value;
    redraw();
  }

  function choose(event) {
    chosen[event.target.dataset.name] = event.target.value;
    redraw();
  }

  function sortBy(column) {
    order.down = order.by === column.name ? !order.down : Boolean(column.number);
    order.by = column.name;
    redraw();
  }

  // Rows: those in view, and the one that has the focus.

  function drawRows() {
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - 6);
    const last = Math.min(shown.length, Math.ceil((scroller.scrollTop + scroller.clientHeight) / ROW) + 6);
    const wanted = shown.slice(first, last);
    const kept = body.querySelector(":focus")?.closest("[data-id]");
    const focused = shown.find((row) => row.id === kept?.dataset.id);
    if (focused && focused.place < first) wanted.unshift(focused);
    if (focused && focused.place >= last) wanted.push(focused);
    const ids = new Set(wanted.map((row) => row.id));
    for (const [id, one] of nodes) {
      if (ids.has(id)) continue;
      one.node.remove();
      nodes.delete(id);
    }
    wanted.forEach((row, place) => {
      let one = nodes.get(row.id);
      if (one?.row !== row) {
        one?.node.remove();
        nodes.set(row.id, (one = { row, node: drawRow(row) }));
      }
      if (body.children[place] !== one.node) body.insertBefore(one.node, body.children[place] || null);
      one.node.style.top = `${row.place * ROW}px`;
      one.node.classList.toggle("odd", row.place % 2 === 1);
      one.node.setAttribute("aria-rowindex", row.place + 2);
      one.node.setAttribute("aria-selected", String(ticked.has(row.id)));
      one.node.tabIndex = row.id === current ? 0 : -1;
      one.node.querySelector("input").checked = ticked.has(row.id);
    });
    if (kept && focused && !body.querySelector(":focus")) nodes.get(focused.id)?.node.focus({ preventScroll: true });
    const hasStop = nodes.has(current);
    if (hasStop) scroller.removeAttribute("tabindex");
    else scroller.tabIndex = 0; // the row that keys act on is out of view
  }

  function drawRow(row) {
    const there = canOpen(row);
    const tick = make("input", { type: "checkbox", tabindex: -1, disabled: !there, "aria-label": `Compare ${row.name}` });
    tick.addEventListener("click", (event) => {
      event.stopPropagation();
      setTick(row, tick.checked);
    });
    const said = (one) => (one.number ? one.number(row[one.name]) : row[one.name]);
    const left = GRID.filter((one) => !columns.includes(one) && (one.name === "score" ? known(row.score) : said(one)));
    const more = left.map((one) => `${one.label}: ${said(one)}`).join("\n");
    const cells = columns.map((column) => {
      const value = row[column.name];
      const content = column.number ? column.number(value) : column.cell ? column.cell(row) : value;
      const quiet = column.number && !known(value) ? "unknown" : "";
      const about = column.name === "begun_at" ? new Date(1000 * value).toString() : tipOf(row, column.name);
      return make(
        "div",
        {
          role: "gridcell",
          class: `page-cell ${column.name} ${column.number ? "number" : ""} ${quiet}`,
          "aria-colindex": GRID.indexOf(column) + 2,
          title: column.name === "name" && more ? `${about}\n${more}` : about,
        },
        content,
      );
    });
    return make(
      "div",
      {
        role: "row",
        class: there ? "page-grid-row" : "page-grid-row away",
        "data-id": row.id,
        title: more || null,
        onclick: () => {
          current = row.id;
          onOpen([row]);
        },
        onfocus: () => {
          current = row.id;
          for (const [id, one] of nodes) one.node.tabIndex = id === current ? 0 : -1;
        },
      },
      make("div", { role: "gridcell", class: "page-cell tick", "aria-colindex": 1, onclick: (event) => event.stopPropagation() }, tick),
      cells,
    );
  }

  function focusRow(place) {
    const row = shown[Math.max(0, Math.min(shown.length - 1, place))];
    if (!row) return;
    current = row.id;
    const room = scroller.clientHeight - head.offsetHeight;
    const top = row.place * ROW;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    if (top + ROW > scroller.scrollTop + room) scroller.scrollTop = top + ROW - room;
    drawRows();
    nodes.get(row.id).node.focus({ preventScroll: true });
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(".page-grid-head")) return;
    const row = shown.find((one) => one.id === current);
    if (!row) return;
    const screen = Math.max(1, Math.floor(scroller.clientHeight / ROW) - 2);
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: screen, PageUp: -screen, Home: -Infinity, End: Infinity }[
      event.key
    ];
    if (step !== undefined) focusRow(row.place + step);
    else if (event.key === "Enter") onOpen([row]);
    else if (event.key === " ") setTick(row, !ticked.has(row.id));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function toFilter(event) {
    if (event.key !== "/" || event.target.matches("input[type=search], select")) return;
    event.preventDefault();
    event.stopPropagation();
    input.focus();
  }

  // Ticks.

  function setTick(row, on) {
    if (!canOpen(row)) return;
    if (on) ticked.add(row.id);
    else ticked.delete(row.id);
    drawRows();
    drawFoot();
  }

  function untick() {
    ticked.clear();
    drawRows();
    drawFoot();
    focusRow(shown.findIndex((row) => row.id === current));
  }

  function drawFoot() {
    const many = ticked.size;
    compareButton.disabled = many < 2 || many > MOST_COMPARED;
    clear.hidden = !many;
    const hidden = many - shown.filter((row) => ticked.has(row.id)).length;
    ticks.textContent = !many
      ? "Tick two or more runs to compare them."
      : many > MOST_COMPARED
        ? `${count(many)} ticked; at most ${MOST_COMPARED} can be compared.`
        : `${count(many)} ticked${hidden ? `, ${count(hidden)} of them not in view` : ""}`;
    compareButton.parentElement.hidden = !rows.length;
  }

  function compareTicked() {
    onOpen(rows.filter((row) => ticked.has(row.id)).sort((one, other) => one.begun_at - other.begun_at));
  }

  return {
    node,
    canOpen,
    take(given) {
      const before = new Set(rows.map((row) => row.id));
      listing = { held: null, ...given };
      rows = given.rows.map((values) => gridRow(given.fields, values));
      const ids = new Set(rows.map((row) => row.id));
      for (const id of ticked) if (!ids.has(id)) ticked.delete(id);
      title.textContent = given.title;
      title.title = given.title;
      about.textContent = given.about || "";
      measure();
      fit();
      const atTop = !scroller.scrollTop;
      redraw({ keepPlace: true });
      if (atTop) scroller.scrollTop = 0;
      const news = rows.filter((row) => !before.has(row.id)).length;
      if (before.size) number.textContent += news ? `, ${count(news)} new` : ", none new";
    },
    focus: () => focusRow(shown.findIndex((row) => row.id === current)),
    busy(on) {
      refresh.disabled = on;
      if (on) number.textContent = "Reading the store\u2026";
    },
    fault(text) {
      number.textContent = text;
    },
  };
}

function tipOf(row, name) {
  if (name === "name") return `${row.id} (${row.agent})`;
  if (name === "state" && row.waits_for.length) return `${row.look[2]}: ${row.waits_for.join(", ")}`;
  if (name === "state" && row.state === "unknown") return "Its process is on another machine and cannot be checked.";
  return ["model", "prompt", "why"].includes(name) ? row[name] : null;
}

function howToFill(live) {
  return [
    make("p", {}, "This store has no runs yet. Record the runs of an agent, or a single run:"),
    make("pre", {}, "agent = lab.Agent(\u2026, observers=[store])\nstore.keep(run)"),
    live && make("p", {}, "Then press Refresh."),
  ].filter(Boolean);
}
