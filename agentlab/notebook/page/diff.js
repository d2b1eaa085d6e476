// Two runs side by side, aligned by step, with the first step that differs.

/** What can differ in a step, in the order of its keys; the words are those of `lab.diff`. */
const STEP_PARTS = ["prompt", "answer", "tool calls", "arguments", "tool results"];

/**
 * Return what differs at each step of two runs: the first such part, "" if the step is the same in both.
 *
 * The steps that a branch took over count as the same whatever its prompt is: that counts for the first step that it takes itself.
 * Limits count at the step from which on they differ.
 */
function differencesByStep(one, other) {
  const shared = Math.max(one.forked_at || 0, other.forked_at || 0);
  const most = Math.max(one.steps.length, other.steps.length);
  const found = [];
  let prompt = false; // it differs in a step that both share: it counts later
  let inForce = [{}, {}];
  let limits = "";
  for (let n = 1; n <= most; n++) {
    const steps = [one.steps[n - 1], other.steps[n - 1]];
    if (!steps[0] || !steps[1]) {
      found.push(steps[0] ? "only on the left" : "only on the right");
      continue;
    }
    const keys = steps.map((step) => step.same.split(" "));
    const differs = STEP_PARTS.filter((part, place) => keys[0][place] !== keys[1][place]);
    const [begin, again] = steps.map((step) => [step.started_s, step.duration_s].join());
    const both = n <= shared && begin === again && !differs.some((part) => ["answer", "tool calls", "arguments"].includes(part));
    prompt ||= differs.includes("prompt");
    let what = prompt && !both ? "prompt" : differs.find((part) => part !== "prompt") || "";
    prompt &&= both;
    if (!what && n === one.steps.length && n === other.steps.length && endsDiffer(one, other)) what = "end";
    inForce = steps.map((step, side) => step.in_force || inForce[side]);
    const now = steps.some((step) => step.in_force) ? changedLimits(...inForce).join() : limits;
    if (!what && now && now !== limits) what = "limits";
    limits = now;
    found.push(what);
  }
  return found;
}

const endsDiffer = (one, other) => !!one.end && !!other.end && one.end.stop_reason !== other.end.stop_reason;

/** The limits in force at a step: they are noted at the step from which on they hold. Without steps, those that the run has now. */
function limitsAt(run, n) {
  const noted = run.steps.slice(0, n).findLast((step) => step?.in_force);
  return noted?.in_force || run.in_force || {};
}

const inWords = (limits) => Object.entries(limits).map((one) => one.join(" ")).join(", ");

/** What differs between two sets of limits, such as "max_turns 4 \u2192 10". */
function changedLimits(before, after) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => before[name] !== after[name]);
  const value = (limits, name) => limits[name] ?? (/^(max_|timeout)/.test(name) ? "no limit" : "none");
  return names.map((name) => `${name} ${value(before, name)} \u2192 ${value(after, name)}`);
}

/** Return the view that compares the open run (right) with another one (left). */
function makeDiff(store) {
  const pick = (side, onPick) => make("select", { "aria-label": side, onchange: (event) => onPick(event.target.value) });
  const swap = () => store.set({ open: store.view.compare, compare: store.view.open, step: store.view.step });
  // The run on the other side can be chosen too: they change places.
  const left = pick("Left run", (id) => (id === store.view.open ? swap() : store.set({ compare: id })));
  const right = pick("Right run", (id) => (id === store.view.compare ? swap() : store.set({ open: id })));
  const close = make("button", { type: "button", class: "page-button", onclick: () => store.set({ compare: null }) }, "Close");
  const summary = make("div", { class: "page-differences" });
  const scroller = make("div", {
    class: "page-transcript page-pairs",
    role: "feed",
    tabindex: 0,
    "aria-label": "Two runs side by side",
  });
  const node = make(
    "section",
    { class: "page-diff", "aria-label": "Comparison" },
    make(
      "div",
      { class: "page-sides" },
      left,
      make(
        "button",
        { type: "button", class: "page-button icon", "aria-label": "Swap the runs", title: "Swap the runs", onclick: swap },
        "\u21c4",
      ),
      right,
      close,
    ),
    summary,
    scroller,
  );
  let one = null;
  let other = null;
  let differs = []; // at each step
  let first = null;
  let here = false;

  const list = makeWindow(scroller, {
    length: () => (one && other ? 2 + Math.max(one.steps.length, other.steps.length) : 0),
    weight: (index) => 300 + Math.max(one.steps[index - 1]?.html?.length || 0, other.steps[index - 1]?.html?.length || 0) * 2,
    build(index) {
      const item = pairItem(store, one, other, index, differs);
      dress(item, {
        "data-index": index,
        "aria-posinset": index + 1,
        "aria-setsize": 2 + Math.max(one.steps.length, other.steps.length),
        tabindex: -1,
      });
      item.querySelectorAll(".page-side").forEach((side, place) => {
        keepFolds(side.querySelectorAll("details"), `diff/${place ? other.id : one.id}/${index}`);
      });
      if (index && index === store.view.step) item.setAttribute("aria-current", "step");
      return item;
    },
  }, () => (asking ||= setTimeout(ask, 60)));
  let asking = 0;
  /** Ask for the texts of what is in the document. */
  function ask() {
    asking = 0;
    for (const run of [one, other]) {
      const missing = [...list.shown.keys()].filter((index) => run?.steps[index - 1]?.html === null);
      if (missing.length) store.need(run.id, missing).catch((error) => store.set({ fault: error.message }));
    }
  }
  scroller.addEventListener("scroll", () => {
    const person = list.scrolledByPerson();
    list.update();
    if (!person) return;
    here = true;
    store.choose(list.current());
    here = false;
  });
  scroller.addEventListener("keydown", (event) => moveByKey(event, store, list, scroller));

  // The lists of runs change with the names only: a list that is open stays so while a run continues.
  const names = ({ view }) => [
    view.open,
    view.compare,
    JSON.stringify(store.runs().map((run) => [run.id, run.name, run.parent])),
  ];
  const choices = part(node, names, ({ view }) => {
    offer(left, view.compare);
    offer(right, view.open);
  });
  function offer(select, chosen) {
    const option = ({ run, depth }) => make("option", { value: run.id }, `${"\u2003".repeat(depth)}${run.name || run.agent}`);
    select.replaceChildren(...treeOf(store.runs()).map(option));
    select.value = chosen;
  }

  const runs = part(node, allRuns, ({ view, run }) => {
    const before = [one, other];
    const differed = differs;
    one = store.run(view.compare);
    other = run;
    if (!one || !other) return;
    differs = differencesByStep(one, other);
    const place = differs.findIndex(Boolean);
    first = place < 0 ? null : place + 1;
    const what = differs[place] === "limits" ? limitsInWords(one, other, first) : differs[place];
    const jump = make("button", { type: "button", class: "page-link" }, `step ${count(first)}, ${what}`);
    jump.addEventListener("click", () => goTo(first));
    summary.replaceChildren(...differencesOf(one, other, first, jump));
    if (before[0]?.id === one.id && before[1]?.id === other.id) {
      const same = (place) => [one, other].every((run, side) => run.steps[place] === before[side].steps[place]) && differs[place] === differed[place];
      let from = 0;
      while (from < differs.length && from < differed.length && same(from)) from++;
      list.refresh(from + 1); // what is read stays as it is while the runs continue
    } else list.reset({ index: first ?? 0, offset: 0 });
  });
  function goTo(step) {
    store.choose(step);
    list.show(step);
  }
  return {
    node,
    update(state) {
      if (state.view.compare === null) return;
      choices.update(state);
      runs.update(state);
      for (const [index, item] of list.shown) {
        if (index > 0 && index === state.view.step) item.setAttribute("aria-current", "step");
        else item.removeAttribute("aria-current");
      }
    },
    print: (on) => list.setWhole(on),
    focus: () => scroller.focus({ preventScroll: true }),
    reveal: (step) => here || list.show(step),
    goToFirst: () => first !== null && goTo(first),
  };
}

const limitsInWords = (one, other, n) => `limits: ${changedLimits(limitsAt(one, n), limitsAt(other, n)).join(", ")}`;

/** What differs between two runs, as facts: where first, the limits, and in steps, tokens, cost and end. */
function differencesOf(one, other, first, jump) {
  const fact = (name, ...value) => make("div", {}, make("span", { class: "page-label" }, name), make("span", {}, value));
  const change = (field, format) => {
    const [before, after] = [one.totals[field], other.totals[field]];
    if (!known(before) || !known(after)) return ["unknown"];
    const share =
      before > 0 && after !== before
        ? ` (${signed(Math.round((100 * (after - before)) / before), (percent) => `${count(percent)} %`)})`
        : "";
    return [make("b", {}, signed(after - before, format)), make("span", { class: "page-quiet" }, share)];
  };
  const endOf = (run) => {
    const [shape, tone, word] = stateOf(run);
    return [mark(shape, tone), run.end ? words(run.end.stop_reason) : word];
  };
  const ends =
    one.end?.stop_reason === other.end?.stop_reason && one.state === other.state
      ? [endOf(one), make("span", { class: "page-quiet" }, ", both")]
      : [endOf(one), " \u2192 ", endOf(other)];
  const limits = changedLimits(one.in_force || {}, other.in_force || {});
  return [
    fact("First difference", first === null ? "none: the steps are the same" : jump),
    fact("Steps", change("steps", count)),
    fact("Tokens", change("tokens", count)),
    fact("Cost", change("cost_usd", dollars)),
    fact("End", ends),
    fact("Limits", limits.length ? limits.join(", ") : "the same"),
  ];
}

const samePrompt = (one, other) => one.prompt_html === other.prompt_html && one.system_html === other.system_html;

/** One row: the same step of both runs. Equal content is shown once. */
function pairItem(store, one, other, index, differs) {
  const most = Math.max(one.steps.length, other.steps.length);
  if (index === 0) return pairOf("Prompt", [headItem(store, one), headItem(store, other)], samePrompt(one, other) ? "same" : "other", null);
  if (index > most)
    return pairOf(
      "End",
      [endItem(one), endItem(other)],
      one.end?.stop_reason === other.end?.stop_reason ? "even" : "other",
      null,
    );
  const steps = [one.steps[index - 1], other.steps[index - 1]];
  const what = differs[index - 1];
  const state = !what ? "same" : differs.findIndex(Boolean) === index - 1 ? "first" : "other";
  const sides = steps.map((step, side) =>
    step
      ? fill(make("div", { class: "page-said" }), step.html)
      : make("p", { class: "page-quiet" }, [one, other][side].end ? "The run ended before this step." : "No such step yet."),
  );
  if (state !== "same" && steps[0] && steps[1]) markOwn(sides);
  return pairOf(`Step ${count(index)}`, sides, state, steps, [one, other], what);
}

function pairOf(title, sides, state, steps, runs = [], what = "") {
  const word = what.startsWith("only") && state === "other" ? what : [{ first: "first difference", other: "differs", same: "the same", even: "" }[state], what].filter(Boolean).join(": ");
  const rule = make(
    "header",
    { class: "page-rule" },
    make("h3", {}, title),
    word ? make("span", { class: `page-pair-state ${state}` }, word) : null,
  );
  const once = state === "same";
  const cells = (once ? sides.slice(0, 1) : sides).map((side, place) =>
    make(
      "div",
      { class: "page-side", "data-run": runs[place]?.name },
      steps?.[place]
        ? make(
            "div",
            { class: "page-facts" },
            make("span", {}, mark(...finishOf(steps[place])), words(steps[place].finish)),
            factsOf(steps[place]).map((fact) => make("span", {}, fact)),
          )
        : null,
      side,
    ),
  );
  return make(
    "article",
    { class: `page-item pair ${state}`, "aria-label": title },
    rule,
    make("div", { class: once ? "page-pair once" : "page-pair" }, cells),
  );
}

/** Mark the blocks of each side that the other does not have. */
function markOwn(sides) {
  const textOf = (block) => {
    const copy = block.cloneNode(true);
    copy.querySelectorAll(".agentlab-call-outcome").forEach((outcome) => outcome.remove()); // its time is another one
    return copy.textContent;
  };
  const texts = sides.map((side) => new Set([...side.children].map(textOf)));
  sides.forEach((side, place) => {
    for (const block of side.children) if (!texts[1 - place].has(textOf(block))) block.classList.add("page-own");
  });
}
