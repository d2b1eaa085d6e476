// The items of a transcript: the conversation before the first step, the steps, the one under way, and the end.

/** What is open or folded, for all runs: it outlives the elements, which come and go with the window. */
const folds = new Map();

/** Put folds as they were left, and note changes. `key` names the item that they are in. */
function keepFolds(folding, key) {
  [...folding].forEach((fold, place) => {
    const name = `${key}/${place}`;
    if (folds.has(name)) fold.open = folds.get(name);
    if (printing) return; // made to be printed, all open
    fold.addEventListener("toggle", () => folds.set(name, fold.open)); // the event comes late: its element may be gone
  });
}

let printing = false;

/** Return the transcript of the open run: prompt, steps, and how it ended. */
function makeTranscript(store, send = null) {
  const scroller = make("div", { class: "page-transcript", role: "feed", tabindex: 0, "aria-label": "Transcript" });
  let run = null;
  let live = null; // the item of the step under way
  let asking = 0;
  let found = null; // lower-case search text
  let hits = [];

  const list = makeWindow(
    scroller,
    {
      length: () => lengthOf(run),
      weight: (index) => 400 + weightOf(run.steps[index - 1]),
      rough: (index) => run.steps[index - 1]?.html === null,
      build(index) {
        const node =
          index === 0
            ? headItem(store, run, send)
            : index <= run.steps.length
              ? stepItem(store, run, run.steps[index - 1], send, list.guess(index))
              : run.live && index === run.steps.length + 1
                ? (live = liveItem(store, run)).node
                : endItem(run, send);
        dress(node, { "aria-posinset": index + 1, "aria-setsize": lengthOf(run), "data-index": index, tabindex: -1 });
        keepFolds(node.querySelectorAll(".page-system, .page-said details"), `${run.id}/${index}`);
        if (index > 0 && index === store.view.step) node.setAttribute("aria-current", "step");
        if (printing)
          node.querySelectorAll(".agentlab-call, .agentlab-reasoning, .page-system").forEach((fold) => (fold.open = true));
        return node;
      },
    },
    () => {
      hits = highlight(list.shown, found, hits);
      asking ||= setTimeout(ask, 60);
    },
  );

  /** Ask for the texts of what is in the document, and of some steps around it. */
  function ask() {
    asking = 0;
    const places = [...list.shown.keys()];
    if (!run || !places.some((index) => run.steps[index - 1]?.html === null)) return;
    const from = Math.max(1, Math.min(...places) - 15);
    const steps = run.steps.slice(from - 1, Math.max(...places) + 15).map((step) => step.n);
    store.need(run.id, steps).catch((error) => store.set({ fault: error.message }));
  }

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
      node.setAttribute("aria-setsize", lengthOf(state.run));
      if (index > 0 && index === state.view.step) node.setAttribute("aria-current", "step");
      else node.removeAttribute("aria-current");
      if (index <= run.steps.length) note(node.querySelector(":scope > .page-notes"), store, run, run.steps[index - 1]);
    }
  }

  /** What has changed decides how much is drawn anew: another run, new steps, or the state at the end. */
  function update(state) {
    const last = run;
    run = state.run;
    if (!run) return;
    if (!last || last.id !== run.id) {
      const { step } = state.view; // the end of a run that goes on is in view, so that its next steps are, too
      const toEnd = run.state === "running" || (run.state !== "ended" && step > 0 && step === run.steps.length);
      list.reset(toEnd ? { end: true } : { index: step > 1 ? step : 0, offset: 0 });
    } else if (last !== run) {
      const typing = typedIn(scroller); // its field stays in view, and has the focus also in an item that is built anew
      const toEnd = list.atEnd() && last.state !== "ended" && !typing;
      const changed = changedSteps(last, run);
      if (changed.length) list.redo(changed);
      const from = firstChange(last, run);
      const under = last.steps.length + 1; // the step under way
      const before = textTop(list, under);
      if (from !== null) list.refresh(from, { toEnd });
      else if (run.live !== last.live && list.shown.get(run.steps.length + 1) === live?.node) {
        live.patch(run);
        list.settle({ toEnd });
      }
      // The rule of a complete step may have more lines: who reads its text sees it where it was.
      const lower = last.live && !toEnd && list.placeOf(under)[0] < 0 ? textTop(list, under) - before : 0;
      if (lower) list.nudge(lower);
      if (typing?.isConnected && typing !== focused()) typing.focus({ preventScroll: true });
    }
    live?.follow();
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
    async revealHit(step) {
      list.show(step);
      if (run.steps[step - 1]?.html === null) {
        await store.need(run.id, [step]);
        await new Promise(requestAnimationFrame); // then it is drawn
      }
      const node = list.shown.get(step);
      if (!node || !found) return;
      const hit = hitsIn(node, found)[0];
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
      const missing = store.steps().filter((step) => step.html === null).length;
      const rest = `Without the texts of ${plural(missing, "step")}: to print all, save the run as a file and print that.`;
      scroller.dataset.missing = missing ? rest : "";
      list.setWhole(on);
    },
  };
}

/** Where the text of an item begins, below its rule; NaN if it is not in the document. */
const textTop = (list, index) => list.shown.get(index)?.querySelector(".page-said")?.offsetTop ?? NaN;
/** The field in this list in which a person types; null if there is none. */
const typedIn = (list) => list.querySelector(":is(textarea, input, select):focus");
/** The place after the prompt, the steps and the step under way. */
const endOf = (run) => run.steps.length + 1 + (run.live ? 1 : 0);
/** While the run goes on it has no end. */
const lengthOf = (run) => (run ? endOf(run) + (run.state === "running" ? 0 : 1) : 0);
const weightOf = (step) => (step ? (step.html === null ? step.size : step.html.length) : 0);

/** The steps in both versions of a run that are not the same in both: their texts have arrived, or the run ended with the last one. */
function changedSteps(last, run) {
  const changed = [];
  if (last.steps === run.steps) return changed;
  const both = Math.min(last.steps.length, run.steps.length);
  for (let place = 0; place < both; place++) if (last.steps[place] !== run.steps[place]) changed.push(place + 1);
  return changed;
}

/** The first item from which on all differ between two versions of a run; null if only single steps do. */
function firstChange(last, run) {
  if (last.system_html !== run.system_html || last.prompt_html !== run.prompt_html) return 0;
  const both = Math.min(last.steps.length, run.steps.length);
  if (last.steps.length !== run.steps.length || last.live?.n !== run.live?.n) return both + 1;
  return last.end !== run.end || last.state !== run.state || last.pending !== run.pending ? endOf(run) : null;
}

/**
 * j and k go from step to step; the arrow keys too, but through a step that is longer than the view they scroll. In a comparison they go
 * on through the steps that only the other run has, which cannot be chosen.
 */
function moveByKey(event, store, list, scroller) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, pre, .agentlab-md table"))
    return;
  const comparing = store.view.compare !== null;
  const step = comparing ? Math.max(store.view.step, list.first()) : store.view.step;
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
  if (comparing) list.show(Math.max(0, to));
  if (event.key === "Home") list.show(0);
  if (event.key === "End") list.show(Infinity);
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
    note(make("ul", { class: "page-notes" }), store, run),
    branchHere(store, run, 0, send),
  );
}

/**
 * One step below its rule: number, finish reason, what it used, and what the conditions read. While its text is not here yet, it has the
 * height that is guessed for it.
 */
function stepItem(store, run, step, send, height) {
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
    step.reads ? make("span", { class: "page-reads" }, readsOf(step)) : null,
  );
  const node = make(
    "article",
    { class: "page-item step", "aria-label": `Step ${step.n}`, "aria-busy": step.html === null && "true" },
    rule,
    fill(make("div", { class: "page-said" }), step.html),
  );
  node.append(note(make("ul", { class: "page-notes" }), store, run, step));
  node.append(...[branchHere(store, run, step.n, send)].filter(Boolean));
  if (step.details || send) node.append(detailsOf(step, run, send));
  if (step.html === null) node.style.minHeight = `${height}px`;
  return node;
}

/** A tool call under way, in one line that unfolds to its arguments. */
function callItem({ name, arguments: given }) {
  const line = ["name", "args", "outcome", "first"].map((part) => make("span", { class: `agentlab-call-${part}`, hidden: part === "first" }));
  line[0].textContent = name;
  line[1].textContent = given;
  const body = make("div", { class: "agentlab-args" }, make("pre", { class: "agentlab-code", dir: "auto" }, given));
  return make("details", { class: "agentlab-call" }, make("summary", {}, line), body);
}

/** The step under way: the answer as it streams in, tool calls and sub-agents at work. `patch` draws what is new of it. */
function liveItem(store, run) {
  const word = make("span", { class: "page-finish" });
  const answer = make("div", { class: "agentlab-md tex2jax_ignore mathjax_ignore", dir: "auto" });
  const text = make("div", { class: "agentlab-assistant" }, answer);
  const note = make("div", { class: "agentlab-note" });
  const children = make("ul", { class: "page-notes" });
  const said = make("div", { class: "page-said" }, text, note);
  const rule = make("header", { class: "page-rule" }, make("h3", {}, mark("play", "live"), `Step ${count(run.live.n)}`), word);
  const node = make("article", { class: "page-item step live", "aria-busy": "true" }, rule, said, children);
  const blocks = []; // the elements of each complete block
  const calls = [];
  let shown = [];
  let tail = [];
  let live = run.live;

  const nodesOf = (html) => [...fill(make("div"), html).childNodes];
  function patch({ live: now }) {
    live = now;
    node.setAttribute("aria-label", [`Step ${live.n}`, live.words].filter(Boolean).join(", "));
    word.textContent = live.words;
    note.textContent = live.note;
    note.hidden = !live.note;
    tail.forEach((one) => one.remove());
    const same = shown.findIndex((html, place) => html !== live.blocks[place]);
    for (const old of blocks.splice(same < 0 ? shown.length : same)) old.forEach((one) => one.remove());
    for (const html of live.blocks.slice(blocks.length)) {
      blocks.push(nodesOf(html));
      answer.append(...blocks.at(-1));
    }
    shown = live.blocks;
    tail = nodesOf(live.tail);
    answer.append(...tail);
    text.hidden = !answer.firstChild;
    for (const old of calls.splice(live.calls.length)) old.remove();
    live.calls.forEach((call, place) => {
      if (!calls[place]) {
        calls[place] = callItem(call);
        said.append(calls[place]);
        keepFolds([calls[place]], place ? `${run.id}/${live.n}/live-${place}` : `${run.id}/${live.n}`);
      }
      calls[place].classList.toggle("failed", call.failed);
      calls[place].querySelector(".agentlab-call-outcome").textContent = call.outcome;
      const first = calls[place].querySelector(".agentlab-call-first");
      first.textContent = call.first;
      first.hidden = !call.first;
    });
    follow();
  }
  /** Sub-agents are runs with their own progress. */
  function follow() {
    const rows = live.children.map((id) => store.run(id)).filter(Boolean);
    const words = rows.map((one) => `${one.name}: ${stateOf(one)[2]}, ${plural(one.steps.length, "step")}`);
    const now = words.join("\n");
    if (children.dataset.words === now) return;
    children.dataset.words = now;
    const link = (one, place) =>
      make("button", { type: "button", class: "page-link", onclick: () => store.set({ open: one.id }) }, words[place]);
    children.replaceChildren(...rows.map((one, place) => make("li", {}, mark("branch", "live"), "sub-agent ", link(one, place))));
  }
  patch(run);
  return { node, patch, follow };
}

/** What the conditions read; a line breaks between two of them. */
const readsOf = (step) => step.reads.split(" \u00b7 ").map((one, place) => [place ? " \u00b7 " : "", make("span", {}, one)]);

function factsOf(step) {
  return [
    known(step.tokens) ? plural(step.tokens, "token") : "tokens unknown",
    known(step.cost_usd) ? dollars(step.cost_usd) : "cost unknown",
    known(step.duration_s) ? seconds(step.duration_s) : null,
  ].filter(Boolean);
}

const fetched = new WeakMap(); // the details of steps that a kernel was asked for

/** The folded details of a step; they come into the document when they are opened. */
function detailsOf(step, run, send) {
  const key = `${run.id}/${step.n}/more`;
  const body = make("div", { class: "page-detail" });
  const summary = make("summary", {}, "Details", make("span", { class: "page-quiet" }, ` of step ${step.n}`));
  const fold = make("details", { class: "page-more" }, summary, body);
  const put = (html) => keepFolds(fill(body, html).querySelectorAll("details"), `${key}/inside`);
  const bring = () => {
    const here = step.details || fetched.get(step);
    if (!fold.open || body.firstChild) return;
    if (here) return put(here);
    body.textContent = "Loading\u2026";
    send({ do: "details", run: run.id, step: step.n }).then(
      (html) => (fetched.set(step, html), put(html)),
      (error) => (body.textContent = error.message),
    );
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

/** Fill the list of what happened at a step, also before the first one. It changes while the step is shown: a branch may come at any time. */
function note(list, store, run, step = { n: 0, children: [] }) {
  const rows = [...(step.n ? marksOf(run, step.n) : []), ...linksOf(store, run, step)].map((one) => make("li", {}, one));
  const now = rows.map((row) => row.textContent).join("\n");
  if (list.dataset.words !== now) list.replaceChildren(...rows);
  list.dataset.words = now;
  list.hidden = !rows.length;
  return list;
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
    ...branches.map((one) => link(one, one.continues ? "the conversation continues:" : "branch:")),
    ...(kept ? [[mark("branch", "live"), "this run branched off here, from ", link(kept, "")[2]]] : []),
  ];
}

/** Below the last step: how the run ended, or its state. */
function endItem(run, send) {
  const [shape, tone] = stateOf(run);
  return make(
    "article",
    { class: "page-item end", "aria-label": "End" },
    mark(shape, tone, 12),
    make("b", {}, run.end ? words(run.end.stop_reason) : stateWords(run)),
    run.end && stateWords(run),
    run.end?.detail ? make("span", {}, run.end.detail) : null,
    send ? null : pendingOf(run), // where one can decide, each call has a card
  );
}

/** The tool calls that wait for a person's word, with the reason for which the run asks; null if there are none. */
function pendingOf(run) {
  if (!run?.pending.length) return null;
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

/** The hits in what an item says: its rule, and the end of the run, are not searched. */
const hitsIn = (node, text) => [...node.querySelectorAll(".page-said")].flatMap((said) => rangesOf(said, text));

/** Mark the hits that are in the document, without touching it, in place of `last`; return them. Other pages may have theirs. */
function highlight(items, text, last) {
  if (!globalThis.Highlight) return [];
  if (!CSS.highlights.has("agentlab-hit")) CSS.highlights.set("agentlab-hit", new Highlight());
  const all = CSS.highlights.get("agentlab-hit");
  const ranges = text ? [...items.values()].flatMap((node) => hitsIn(node, text)) : [];
  last.forEach((range) => all.delete(range));
  ranges.forEach((range) => all.add(range));
  return ranges;
}
