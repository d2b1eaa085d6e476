// Elements, values in words, and the store that holds the data of the page.
//
// Python makes the fields named `html` safe; `fill` alone turns text into markup, and it is called with those fields only.

// Elements -------------------------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

/** Return an element. `on…` in `properties` are listeners, the others attributes; false, null and undefined leave one out. */
function make(tag, properties = {}, ...children) {
  return dress(document.createElement(tag), properties, children);
}

/** The same for the elements of a drawing. */
function draw(tag, properties = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), properties, children);
}

/** Set the attributes and listeners of an element, and add children. */
function dress(node, properties, children = []) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== ""),
  );
  return node;
}

/** Put HTML that Python has made safe into an element. */
function fill(node, html) {
  node.innerHTML = html || "";
  return node;
}

/** The element that has the focus. In a shadow tree, as marimo's, the document knows its host only. */
function focused() {
  let node = document.activeElement;
  while (node?.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
  return node;
}

/** Return a part of the page that is drawn anew only if one of its inputs has changed: what has the focus in it stays. */
function part(node, inputs, redraw) {
  let last = null;
  const update = (state) => {
    const now = inputs(state);
    if (last !== null && now.every((value, place) => Object.is(value, last[place]))) return;
    last = now;
    redraw(state);
  };
  return { node, update };
}

/** A section of the drawer that folds; its body is drawn by the caller. */
function section(title, body, { open = true, name = "" } = {}) {
  const aside = make("span", { class: "page-aside" });
  const summary = make("summary", {}, make("h2", {}, title), aside);
  const node = make("details", { class: "page-section", open, "data-section": name }, summary, body);
  return { node, aside };
}

// Values in words ------------------------------------------------------------------------------------------------------------

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** True for a finite number; JSON has null where a value is unknown. */
const known = (value) => typeof value === "number" && Number.isFinite(value);

const count = (value) => (known(value) ? WHOLE.format(value) : "unknown");
const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** An amount in USD without exponent: two to six decimals, two digits where it is smaller than that. */
function dollars(value) {
  if (!known(value)) return "unknown";
  const size = Math.abs(value);
  if (size > 0 && size < 5e-7) return `$${value.toFixed(Math.min(20, 1 - Math.floor(Math.log10(size))))}`;
  return `$${value.toFixed(size >= 100 ? 2 : size >= 1 ? 4 : 6).replace(/(\.\d\d+?)0+$/, "$1")}`;
}

function seconds(value) {
  if (!known(value)) return "unknown";
  if (value < 0.0005) return "<1 ms";
  if (value < 0.9995) return `${(1000 * value).toFixed(0)} ms`;
  if (value < 60) return `${Number.isInteger(value) ? value : value.toFixed(value < 10 ? 2 : 1)} s`;
  const whole = Math.floor(value);
  const [large, small, units] =
    whole < 3600
      ? [Math.floor(whole / 60), whole % 60, ["min", "s"]]
      : [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, ["h", "min"]];
  return small ? `${large} ${units[0]} ${String(small).padStart(2, "0")} ${units[1]}` : `${large} ${units[0]}`;
}

/** A value with the unit of its limit. Of a time, 0 is one that has not begun. */
function amount(value, unit) {
  if (typeof value === "string") return value;
  if (unit === "usd") return dollars(value);
  if (unit === "s") return value === 0 ? "0 s" : seconds(value);
  if (!known(value)) return "unknown";
  return Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(4)));
}

const came = new WeakMap(); // when numbers of the kernel's clocks came

/** The seconds since a number of the kernel's clocks came. */
function passed(what) {
  came.has(what) || came.set(what, performance.now());
  return (performance.now() - came.get(what)) / 1000;
}

/** The time of a run now, in s: it counts here while it counts in the kernel. */
const elapsedOf = (run) => run.totals.elapsed_s + (run.ticks ? passed(run.totals) : 0);

/** A name from Python's vocabulary ("tool_calls") as words. */
const words = (name) => (name || "").replaceAll("_", " ");

/** A difference with its sign; the minus is a real one. */
function signed(value, format) {
  if (!known(value)) return "unknown";
  const sign = value > 0 ? "+" : value < 0 ? "\u2212" : "\u00b1";
  return `${sign}${format(Math.abs(value))}`;
}

// Marks: a shape and a tone for each way to finish, so that colour is never alone --------------------------------------------

const FINISHES = {
  tool_calls: ["circle", "plain"],
  end_turn: ["diamond", "good"],
  stop_sequence: ["diamond", "good"],
  paused: ["bars", "warn"],
  max_tokens: ["triangle", "warn"],
  context_window_exceeded: ["triangle", "warn"],
  content_filtered: ["square", "bad"],
  cancelled: ["square", "bad"],
  error: ["cross", "bad"],
  no_answer: ["cross", "bad"],
};
const RANK = { plain: 0, good: 1, warn: 2, bad: 3 };

/** Shape and tone of how a step finished; a ring if that is unknown. */
const finishOf = (step) => (Object.hasOwn(FINISHES, step.finish) ? FINISHES[step.finish] : ["ring", "warn"]);

const SHAPES = {
  circle: "M5 1.5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 1 0 0-7z",
  ring: "M5 .8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 1 0 0-8.4zM5 3a2 2 0 1 1 0 4a2 2 0 1 1 0-4z",
  diamond: "M5 0l5 5l-5 5l-5-5z",
  triangle: "M5 .3l5 9.2h-10z",
  square: "M1 1h8v8h-8z",
  cross: "M1.8.2l3.2 3.2l3.2-3.2l1.6 1.6l-3.2 3.2l3.2 3.2l-1.6 1.6l-3.2-3.2l-3.2 3.2l-1.6-1.6l3.2-3.2l-3.2-3.2z",
  step: "M1 .3l6 4.7l-6 4.7zM7.6 .5h1.8v9h-1.8z",
  bars: "M1.5 .5h2.6v9h-2.6zM5.9 .5h2.6v9h-2.6z",
  play: "M1.5 .3l8 4.7l-8 4.7z",
  save: "M4.2 0h1.6v4.2h2.2l-3 3.3l-3-3.3h2.2zM.6 8.4h8.8v1.5h-8.8z",
  branch:
    "M2.5.2a1.6 1.6 0 0 1 .6 3.1v.9h2.4c1.2 0 1.9-.4 1.9-1.1a1.6 1.6 0 1 1 1.2 0c0 1.5-1.3 2.3-3.1 2.3h-2.4v1.3a1.6 1.6 0 1 1-1.2 0v-3.4a1.6 1.6 0 0 1 .6-3.1z",
};

/** A shape in the colour of the text around it, for the eye only: words beside it say the same. */
function mark(shape, tone = "", size = 10) {
  const path = draw("path", { d: SHAPES[shape], "fill-rule": "evenodd" });
  return draw(
    "svg",
    { class: `page-mark ${tone}`, width: size, height: size, viewBox: "0 0 10 10", "aria-hidden": "true" },
    path,
  );
}

/** Shape, tone and words of the state of a run. */
function stateOf(run) {
  if (run.state === "running") return ["play", "live", "running"];
  if (run.state === "paused") return ["bars", "warn", "paused"];
  if (run.state === "waiting") return ["bars", "warn", "waiting for approval"];
  if (run.state === "interrupted") return ["square", "warn", "interrupted"];
  if (run.state !== "ended") return ["ring", "plain", words(run.state) || "idle"];
  if (run.end?.kind === "terminated") return ["diamond", "good", "ended"];
  return run.end?.stop_reason === "error" ? ["cross", "bad", "ended early"] : ["triangle", "warn", "ended early"];
}

/** The state of a run that has not ended, in a few words more. */
function stateWords(run) {
  if (run.state === "running") return "still running";
  if (run.state === "idle") return run.steps.length ? "ready for the next step" : "not started yet";
  return stateOf(run)[2];
}

// The store ------------------------------------------------------------------------------------------------------------------

/** What may be missing of a run: the steps and marks of a live one come apart from it. */
const EMPTY_RUN = {
  steps: [],
  marks: [],
  made: [],
  live: null,
  buttons: null, // from here on: live only
  settings: null,
  code: "",
  soon: "",
  ticks: false,
  paused: null,
  chat: null,
  asked: [],
  prompt: "",
};

/** A step before anything is known of it. In a notebook `html` is null until the page has asked for it: see `need`. */
const EMPTY_STEP = {
  html: null,
  size: 0,
  finish: "",
  stop_reason: null,
  action: "execute_tools",
  tokens: null,
  cost_usd: null,
  total_tokens: null,
  total_cost_usd: null,
  duration_s: null,
  started_s: null,
  reads: "",
  spans: [],
  children: [],
  same: "",
  in_force: null,
};
const MOST_ASKED = 100; // steps of one question

/**
 * Return the store: the runs, and what is shown of them.
 *
 * Data may come whole (a file) or piece by piece (a kernel): `put` sets fields of a run and makes one that is not there yet,
 * `append` adds steps or fields of those with the same number. Where a kernel has the texts of steps, `source` asks it for them:
 * `need` returns a promise that is kept when they are here. `view` holds the open run, the chosen step (0: before the first), the
 * search text, and the run that is compared with the open one. Subscribers are called with the name of what has changed.
 */
function makeStore(data = {}, source = null) {
  const runs = new Map();
  const chosen = new Map();
  const listeners = new Set();
  const asked = new Map();
  const view = { open: null, step: 0, query: "", compare: null, fault: "", all: null, beside: false };
  const notify = (what) => listeners.forEach((listener) => listener(what));

  function keep(id, { kept = 0, ...fields }) {
    // Of a branch, only the steps come that it does not share with its parent, which is there already.
    if (kept) fields.steps = [...store.steps(fields.parent).slice(0, kept), ...(fields.steps || [])];
    const run = { ...(runs.get(id) || { ...EMPTY_RUN, id }), ...fields };
    runs.set(id, run);
    view.open ??= id;
    return run;
  }

  const store = {
    title: data.title || "",
    view,
    run: (id = view.open) => runs.get(id) || null,
    runs: () => [...runs.values()],
    steps: (id = view.open) => runs.get(id)?.steps || [],
    put(id, fields) {
      keep(id, fields);
      notify("runs");
    },
    append(id, steps) {
      const all = store.steps(id).slice();
      const before = all.length;
      const follows = id === view.open && view.step === before;
      for (const step of steps) all[step.n - 1] = withTotals({ ...EMPTY_STEP, ...all[step.n - 1], ...step }, all[step.n - 2]);
      keep(id, { steps: all });
      if (follows) view.step = before ? all.length : firstChoice(runs.get(id)); // a run that has ended is read from its beginning
      notify("steps");
    },
    /** Ask for the texts of these steps, by their numbers, unless they are here or asked for already. */
    need(id, numbers) {
      const missing = numbers.filter((n) => store.steps(id)[n - 1]?.html === null);
      const fresh = missing.filter((n) => !asked.has(`${id}/${n}`));
      for (let at = 0; source && at < fresh.length; at += MOST_ASKED) {
        const some = fresh.slice(at, at + MOST_ASKED);
        const answer = source
          .steps(id, some)
          .then((steps) => store.append(id, steps))
          .finally(() => some.forEach((n) => asked.delete(`${id}/${n}`)));
        some.forEach((n) => asked.set(`${id}/${n}`, answer));
      }
      return Promise.all(new Set(missing.map((n) => asked.get(`${id}/${n}`)))).then(() => {});
    },
    /** Steps of the open run in which a text is found, from a step on; null if all texts are here, to be searched in the page. */
    search(query, from) {
      const here = !source || store.steps().every((step) => step.html !== null);
      return here ? null : source.search(view.open, query, from);
    },
    set(fields) {
      if ("open" in fields && fields.open !== view.open) {
        if (!runs.has(fields.open)) return;
        chosen.set(view.open, view.step);
        const run = runs.get(fields.open);
        const compare = view.compare === run.id ? view.open : view.compare; // no run is compared with itself
        fields = { step: chosen.get(run.id) ?? firstChoice(run), compare, beside: false, ...fields };
      }
      if (Object.entries(fields).every(([name, value]) => view[name] === value)) return;
      Object.assign(view, fields);
      notify(Object.keys(fields).every((name) => name === "all" || name === "fault") ? "runs" : "view"); // those come from the kernel
    },
    choose(step) {
      store.set({ step: Math.max(Math.min(1, store.steps().length), Math.min(step, store.steps().length)) });
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  for (const run of data.runs || []) keep(run.id, run).steps.forEach((step, at, all) => withTotals(step, all[at - 1]));
  if (runs.has(data.open)) view.open = data.open;
  if (view.open !== null) view.step = firstChoice(runs.get(view.open));
  return store;
}

/** A step with the totals up to it: unknown from the first unknown amount on. */
function withTotals(step, before) {
  const add = (total, amount) => (known(total) && known(amount) ? total + amount : null);
  step.total_tokens = add(before ? before.total_tokens : 0, step.tokens);
  step.total_cost_usd = add(before ? before.total_cost_usd : 0, step.cost_usd);
  return step;
}

/** The step that is shown first: the newest of a run that continues, also of a new branch, else the beginning, where the prompt is. */
function firstChoice(run) {
  const continues = run.state !== "ended" && (run.state !== "idle" || known(run.forked_at));
  return continues ? run.steps.length : Math.min(1, run.steps.length);
}

/** The next run of each run in its conversation: a message that was sent after its end made it. */
function followersOf(runs) {
  const next = new Map();
  for (const run of runs) if (run.continues && !next.has(run.parent)) next.set(run.parent, run);
  return next;
}

/** The whole conversation of which a run is a part, as the runs that follow each other. */
function conversationOf(run, runs) {
  const next = followersOf(runs);
  const parentOf = (one) => runs.find((other) => other.id === one.parent && next.get(other.id) === one);
  const chain = [run];
  for (let one = parentOf(run); one && !chain.includes(one); one = parentOf(one)) chain.unshift(one);
  for (let one = next.get(run.id); one && !chain.includes(one); one = next.get(one.id)) chain.push(one);
  return chain;
}

/**
 * The runs as a tree in their given order: each with its depth. A run whose parent is not among them is a root; the runs of a
 * conversation are at one depth.
 */
function treeOf(runs) {
  const ids = new Set(runs.map((run) => run.id));
  const next = followersOf(runs);
  const parentOf = (run) => (ids.has(run.parent) ? run.parent : null);
  const rows = [];
  const placed = new Set();
  const place = (run, depth) => {
    if (placed.has(run.id)) return;
    placed.add(run.id);
    rows.push({ run, depth });
    for (const one of runs) if (parentOf(one) === run.id) place(one, next.get(run.id) === one ? depth : depth + 1);
  };
  for (const run of runs) if (parentOf(run) === null) place(run, 0);
  for (const run of runs) place(run, 0); // a circle of parents would leave them out
  return rows;
}

/** How a run came to be, in words; with `where`, from which run. */
function originOf(run, store, where = true) {
  const parent = run.parent ? store.run(run.parent) : null;
  const of = where && parent ? ` of ${parent.name}` : "";
  if (run.called_by) return `sub-agent${of}`;
  if (!parent) return "";
  return `branch${of}${known(run.forked_at) ? ` after step ${run.forked_at}` : ""}`;
}

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", "#x27": "'", nbsp: " " };
const texts = new WeakMap();

/** The text of safe HTML in lower case, to search; without the times of tool calls, which differ from run to run. */
function plain(html) {
  return (html || "")
    .replace(/<span class="agentlab-call-outcome">[^<]*<\/span>/g, " ")
    .replace(/<[^>]*>/g, "")
    .replace(/&(#?\w+);/g, (whole, name) => ENTITIES[name] ?? whole)
    .toLowerCase();
}

/** The same of a step, made once. */
function textOf(step) {
  if (!texts.has(step)) texts.set(step, plain(step.html));
  return texts.get(step);
}
