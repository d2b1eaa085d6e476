// The transcript: a windowed list. Only what is near the visible part is in the document, so that 5,000 steps stay smooth.

const OVERSCAN = 500; // pixels above and below the visible part that are in the document too
const FIRST_GUESS = 160; // pixels of an item before any was measured

/**
 * Return a windowed list inside `scroller`.
 *
 * `source` has `length()`, `build(index)` which returns an element, and `weight(index)`: a number that grows with the height, such as
 * the length of the text. Heights are guessed from weights until an item is in the document and is measured. Whatever changes, the first
 * visible item keeps its place on the screen; after `refresh(…, { toEnd: true })` the end does.
 */
function makeWindow(scroller, source, onDrawn = () => {}) {
  const before = make("div", { "aria-hidden": "true" });
  const after = make("div", { "aria-hidden": "true" });
  const shown = new Map(); // index to element, those in the document
  let heights = [];
  let measured = [];
  let starts = [0];
  let ratio = { height: 0, weight: 0 };
  let whole = false; // printing: everything is in the document
  let own = -1; // the position that this code has set: no person scrolled there

  const total = () => starts.at(-1);
  const indexAt = (y) => {
    let low = 0;
    let high = heights.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return Math.max(0, low);
  };
  const anchor = () => {
    const index = indexAt(scroller.scrollTop);
    return { index, offset: starts[index] - scroller.scrollTop };
  };
  const atEnd = () => scroller.scrollTop + scroller.clientHeight >= total() - 4;

  function guess(index) {
    const each = ratio.weight > 0 ? ratio.height / ratio.weight : 0;
    return each > 0 ? Math.max(40, each * source.weight(index)) : FIRST_GUESS;
  }

  function sum(from = 0) {
    starts.length = heights.length + 1;
    starts[0] = 0;
    for (let index = from; index < heights.length; index++) starts[index + 1] = starts[index] + heights[index];
  }

  /** Guesses use what has been measured so far; a measured height stays. */
  function guessAll() {
    for (let index = 0; index < heights.length; index++) if (!measured[index]) heights[index] = guess(index);
    sum();
  }

  /** Read the heights in the document; true if one is not what was thought. */
  function measure() {
    let changed = heights.length;
    for (const [index, node] of shown) {
      const height = node.getBoundingClientRect().height;
      if (!measured[index]) {
        ratio.height += height;
        ratio.weight += source.weight(index);
      }
      measured[index] = true;
      if (Math.abs(height - heights[index]) < 0.01) continue;
      heights[index] = height;
      changed = Math.min(changed, index);
    }
    if (changed < heights.length) sum(changed);
    return changed < heights.length;
  }

  function top(hold) {
    const wanted = hold.end ? total() : starts[hold.index] - hold.offset;
    return Math.max(0, Math.min(wanted, total() - scroller.clientHeight));
  }

  function range(hold) {
    if (whole) return [0, heights.length];
    const y = top(hold);
    return [indexAt(y - OVERSCAN), Math.min(heights.length, indexAt(y + scroller.clientHeight + OVERSCAN) + 1)];
  }

  function take(index, node) {
    if (node.contains(document.activeElement)) scroller.focus({ preventScroll: true });
    sizes.unobserve(node);
    node.remove();
    shown.delete(index);
  }

  function place(from, to) {
    for (const [index, node] of shown) if (index < from || index >= to) take(index, node);
    let next = after;
    for (let index = to - 1; index >= from; index--) {
      let node = shown.get(index);
      if (!node) {
        node = source.build(index);
        shown.set(index, node);
        next.before(node);
        sizes.observe(node);
      }
      next = node;
    }
    before.style.height = `${starts[from] || 0}px`;
    after.style.height = `${total() - (starts[to] ?? total())}px`;
  }

  function update(hold = anchor()) {
    if (scroller.clientHeight === 0 && !whole) return; // out of sight: there is nothing to measure
    let from = 0;
    let to = 0;
    for (let round = 0; round < 5; round++) {
      [from, to] = range(hold);
      place(from, to);
      if (!measure()) break;
    }
    place(from, to);
    const y = top(hold);
    if (!whole && Math.abs(scroller.scrollTop - y) > 0.5) {
      scroller.scrollTop = y;
      own = scroller.scrollTop;
    }
    onDrawn();
  }

  function drop(from) {
    for (const [index, node] of shown) if (index >= from) take(index, node);
  }

  // A fold that opens, a picture that arrives, or another width: the heights are read again before anything is painted.
  const sizes = new ResizeObserver(() => {
    const hold = anchor();
    if (measure()) update(hold);
  });
  new ResizeObserver(() => update()).observe(scroller);
  scroller.replaceChildren(before, after);

  return {
    update,
    atEnd,
    shown,
    /** All is new, such as another run. */
    reset(hold = { index: 0, offset: 0 }) {
      drop(0);
      heights = new Array(source.length()).fill(FIRST_GUESS);
      measured = new Array(source.length()).fill(false);
      ratio = { height: 0, weight: 0 };
      sum();
      update(hold);
      guessAll(); // the first items have been measured now: what follows is guessed better
      update(hold);
    },
    /** Items from this index on have changed, or are new. */
    refresh(from, { toEnd = false } = {}) {
      const hold = toEnd ? { end: true } : anchor();
      drop(from);
      const length = source.length();
      for (let index = Math.min(from, heights.length); index < length; index++) {
        heights[index] ??= guess(index);
        measured[index] = false;
      }
      heights.length = measured.length = length;
      sum();
      update(hold);
    },
    /** Bring an item to the upper edge, or as near as the end allows. */
    show(index) {
      update({ index, offset: 0 });
      own = scroller.scrollTop;
    },
    /** Move by so many pixels without being taken for the person. */
    nudge(by) {
      scroller.scrollTop += by;
      own = scroller.scrollTop;
    },
    /** True if a person has scrolled, not this code; the answer is given once. */
    scrolledByPerson() {
      const person = Math.abs(scroller.scrollTop - own) > 1;
      own = -1;
      return person;
    },
    /** The item that is read: at the top the first, at the end the last, between them what is at the same share of the view. */
    current() {
      const room = Math.max(1, total() - scroller.clientHeight);
      const share = Math.min(1, Math.max(0, scroller.scrollTop / room));
      return indexAt(scroller.scrollTop + share * (scroller.clientHeight - 2) + 1);
    },
    /** Where an item begins and ends in the view. */
    placeOf: (index) => [starts[index] - scroller.scrollTop, starts[index + 1] - scroller.scrollTop],
    /** For printing: everything is in the document. */
    setWhole(on) {
      const hold = anchor();
      drop(0);
      whole = on;
      update(hold);
    },
  };
}

// The items of a transcript --------------------------------------------------------------------------------------------------

/** What is open or folded, for all runs: it outlives the elements, which come and go with the window. */
const folds = new Map();

/** Put folds as they were left, and note changes. `key` names the item that they are in. */
function keepFolds(folding, key) {
  [...folding].forEach((fold, place) => {
    const name = `${key}/${place}`;
    if (folds.has(name)) fold.open = folds.get(name);
    fold.addEventListener("toggle", () => {
      if (!printing && fold.isConnected) folds.set(name, fold.open); // the event comes late: printing may be over, and its element gone
    });
  });
}

let printing = false;

/** Return the transcript of the open run: prompt, steps, and how it ended. */
function makeTranscript(store, send = null) {
  const scroller = make("div", { class: "page-transcript", role: "feed", tabindex: 0, "aria-label": "Transcript" });
  let run = null;
  let found = null; // lower-case search text
  let hits = [];

  const list = makeWindow(
    scroller,
    {
      length: () => (run ? run.steps.length + 2 : 0),
      weight: (index) => 400 + (index === 0 ? 0 : (run.steps[index - 1]?.html.length ?? 0)),
      build(index) {
        const node =
          index === 0
            ? headItem(store, run, send)
            : index <= run.steps.length
              ? stepItem(store, run, run.steps[index - 1], send)
              : endItem(run, send);
        dress(node, { "aria-posinset": index + 1, "aria-setsize": run.steps.length + 2, "data-index": index, tabindex: -1 });
        keepFolds(node.querySelectorAll(".page-system, .page-said details"), `${run.id}/${index}`);
        if (index > 0 && index === store.view.step) node.setAttribute("aria-current", "step");
        if (printing)
          node.querySelectorAll(".agentlab-call, .agentlab-reasoning, .page-system").forEach((fold) => (fold.open = true));
        return node;
      },
    },
    () => (hits = highlight(list.shown, found, hits)),
  );

  scroller.addEventListener("scroll", () => {
    const person = list.scrolledByPerson();
    list.update();
    if (person) chosenHere(Math.min(list.current(), store.steps().length));
  });
  scroller.addEventListener("click", (event) => {
    if (event.target.closest("a, button, summary, input") || !getSelection().isCollapsed) return;
    const item = event.target.closest("[data-index]");
    if (item) chosenHere(Number(item.dataset.index));
  });
  scroller.addEventListener("keydown", (event) => moveByKey(event, store, list, scroller));

  let here = false; // true while the person chooses a step in the transcript itself: it is in view already
  function chosenHere(index) {
    here = true;
    store.choose(index);
    here = false;
  }

  function follow(state) {
    for (const [index, node] of list.shown) {
      node.setAttribute("aria-setsize", state.run.steps.length + 2);
      if (index > 0 && index === state.view.step) node.setAttribute("aria-current", "step");
      else node.removeAttribute("aria-current");
    }
  }

  /** What has changed decides how much is drawn anew: another run, new steps, or the state at the end. */
  function update(state) {
    const last = run;
    run = state.run;
    if (!run) return;
    if (!last || last.id !== run.id) {
      list.reset(run.state === "running" ? { end: true } : { index: state.view.step > 1 ? state.view.step : 0, offset: 0 });
    } else if (last !== run) {
      const from = firstChange(last, run);
      if (from !== null) list.refresh(from, { toEnd: list.atEnd() && run.state !== "ended" });
    }
    follow(state);
  }

  return {
    node: scroller,
    list,
    update,
    focus: () => scroller.focus({ preventScroll: true }),
    /** Bring the chosen step into view, unless it was chosen by scrolling or clicking here. */
    reveal(step) {
      if (!here) list.show(step);
    },
    find(query) {
      found = query;
      hits = highlight(list.shown, found, hits);
    },
    /** Bring the first hit in a step into view, and unfold what hides it. */
    revealHit(step) {
      list.show(step);
      const node = list.shown.get(step);
      if (!node || !found) return;
      const hit = rangesOf(node, found)[0];
      if (!hit) return;
      for (let fold = hit.startContainer.parentElement.closest("details"); fold; fold = fold.parentElement.closest("details"))
        fold.open = true;
      list.update();
      const box = hit.getBoundingClientRect();
      const view = scroller.getBoundingClientRect();
      if (box.bottom > view.bottom - 24) list.nudge(box.top - view.top - view.height / 3);
      list.update();
    },
    print(on) {
      printing = on;
      list.setWhole(on);
    },
  };
}

/** The first item that differs between two versions of a run; null if none does. */
function firstChange(last, run) {
  if (last.system_html !== run.system_html || last.prompt_html !== run.prompt_html) return 0;
  const both = Math.min(last.steps.length, run.steps.length);
  for (let place = 0; place < both; place++) if (last.steps[place] !== run.steps[place]) return place + 1;
  if (last.steps.length !== run.steps.length) return both + 1;
  return last.end !== run.end || last.state !== run.state || last.pending !== run.pending ? run.steps.length + 1 : null;
}

/** j and k go from step to step; the arrow keys too, but through a step that is longer than the view they scroll. */
function moveByKey(event, store, list, scroller) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, pre, .agentlab-md table"))
    return;
  const { step } = store.view;
  const [top, bottom] = list.placeOf(step);
  const room = scroller.clientHeight;
  const to = {
    j: step + 1,
    k: step - 1,
    ArrowDown: bottom > room + 1 && top < room ? undefined : step + 1,
    ArrowUp: top < -1 && bottom > 0 ? undefined : step - 1,
    Home: 1,
    End: Infinity,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  store.choose(to);
  if (event.key === "Home") list.show(0);
  if (event.key === "End") list.show(store.steps().length + 1);
  if (event.key === "k" || event.key === "ArrowUp") if (step === 1) list.show(0);
}

/** The conversation before the first step. */
function headItem(store, run, send) {
  const system = run.system_html
    ? make("details", { class: "page-system" }, make("summary", {}, "Instructions"), fill(make("div"), run.system_html))
    : null;
  return make(
    "article",
    { class: "page-item head", "aria-label": "Prompt" },
    system,
    fill(make("div", { class: "page-said" }), run.prompt_html),
    branchHere(store, run, 0, send),
  );
}

/** One step below its rule: number, finish reason, what it used, and what the conditions read. */
function stepItem(store, run, step, send) {
  const [shape, tone] = finishOf(step);
  const rule = make(
    "header",
    { class: "page-rule" },
    make("h3", {}, mark(shape, tone), `Step ${count(step.n)}`),
    make("span", { class: "page-finish" }, words(step.finish) || "no answer"),
    make(
      "span",
      { class: "page-facts" },
      factsOf(step).map((fact) => make("span", {}, fact)),
    ),
    step.reads ? make("span", { class: "page-reads", title: step.reads }, step.reads) : null,
  );
  const node = make(
    "article",
    { class: "page-item step", "aria-label": `Step ${step.n}` },
    rule,
    fill(make("div", { class: "page-said" }), step.html),
  );
  const beside = [...marksOf(run, step.n), ...linksOf(store, run, step)];
  if (beside.length)
    node.append(
      make(
        "ul",
        { class: "page-notes" },
        beside.map((one) => make("li", {}, one)),
      ),
    );
  node.append(...[branchHere(store, run, step.n, send)].filter(Boolean));
  if (step.details) node.append(detailsOf(step, `${run.id}/${step.n}/more`));
  return node;
}

function factsOf(step) {
  return [
    known(step.tokens) ? plural(step.tokens, "token") : "tokens unknown",
    known(step.cost_usd) ? dollars(step.cost_usd) : "cost unknown",
    known(step.duration_s) ? seconds(step.duration_s) : null,
  ].filter(Boolean);
}

/** The folded details of a step; they come into the document when they are opened. */
function detailsOf(step, key) {
  const body = make("div", { class: "page-detail" });
  const summary = make("summary", {}, "Details", make("span", { class: "page-quiet" }, ` of step ${step.n}`));
  const fold = make("details", { class: "page-more" }, summary, body);
  const bring = () => {
    if (fold.open && !body.firstChild) keepFolds(fill(body, step.details).querySelectorAll("details"), `${key}/inside`);
  };
  keepFolds([fold], key);
  bring(); // at once where it was left open, so that its height is known
  fold.addEventListener("toggle", bring);
  return fold;
}

const MARK_SHAPES = { limits: "ring", paused: "bars", warning: "triangle", retry: "ring", nudge: "play", continuation: "play" };

function marksOf(run, step) {
  return run.marks
    .filter((one) => one.step === step)
    .map((one) => [
      mark(MARK_SHAPES[one.kind] || "ring", one.kind === "warning" ? "warn" : "plain"),
      make("b", {}, words(one.kind)),
      one.text && one.text !== one.kind ? ` ${one.text}` : null,
    ]);
}

/** Buttons that open the runs which began at this step: branches, and sub-agents of its tools. */
function linksOf(store, run, step) {
  const children = step.children.map((id) => store.run(id)).filter(Boolean);
  const branches = store.runs().filter((one) => one.parent === run.id && one.forked_at === step.n);
  const link = (one, what) => [
    mark("branch", "live"),
    `${what} `,
    make("button", { type: "button", class: "page-link", onclick: () => store.set({ open: one.id }) }, one.name),
  ];
  const kept = run.forked_at === step.n && store.run(run.parent);
  return [
    ...children.map((one) => link(one, "sub-agent")),
    ...branches.map((one) => link(one, "branch:")),
    ...(kept ? [[mark("branch", "live"), "this run branched off here, from ", link(kept, "")[2]]] : []),
  ];
}

/** Below the last step: how the run ended, or that it is still running. */
function endItem(run, send) {
  const [shape, tone, word] = stateOf(run);
  const state = { running: "still running", idle: "not started yet" }[run.state] || word;
  const [why, kind] = run.end ? endWords(run.end) : [state, ""];
  return make(
    "article",
    { class: "page-item end", "aria-label": "End" },
    mark(shape, tone, 12),
    make("b", {}, why),
    kind,
    run.end?.detail ? make("span", {}, run.end.detail) : null,
    send ? null : pendingOf(run), // where one can decide, each call has a card
  );
}

/** The tool calls that wait for a person's word, with the reason for which the run asks; null if there are none. */
function pendingOf(run) {
  if (!run?.pending?.length) return null;
  const rows = run.pending.map((call) =>
    make(
      "li",
      {},
      make("b", { class: "agentlab-call-name" }, call.tool),
      make("code", {}, call.arguments),
      make("small", {}, call.why),
    ),
  );
  return make("ul", { class: "page-pending", "aria-label": "Calls that wait for approval" }, rows);
}

// Search hits in the document ------------------------------------------------------------------------------------------------

/** Ranges of the text, in lower case, inside a node. */
function rangesOf(node, text) {
  const found = [];
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && found.length < 200) {
    const within = walker.currentNode.data.toLowerCase();
    for (let at = within.indexOf(text); at !== -1; at = within.indexOf(text, at + text.length)) {
      const range = document.createRange();
      range.setStart(walker.currentNode, Math.min(at, walker.currentNode.length));
      range.setEnd(walker.currentNode, Math.min(at + text.length, walker.currentNode.length));
      found.push(range);
    }
  }
  return found;
}

/** Mark the hits that are in the document, without touching it, in place of `last`; return them. Other pages may have theirs. */
function highlight(items, text, last) {
  if (!globalThis.Highlight) return [];
  if (!CSS.highlights.has("agentlab-hit")) CSS.highlights.set("agentlab-hit", new Highlight());
  const all = CSS.highlights.get("agentlab-hit");
  const ranges = text ? [...items.values()].flatMap((node) => rangesOf(node.querySelector(".page-said") || node, text)) : [];
  last.forEach((range) => all.delete(range));
  ranges.forEach((range) => all.add(range));
  return ranges;
}
