// To a step: the scrubber, and search.

// The scrubber ---------------------------------------------------------------------------------------------------------------

const THUMB = 14; // pixels, as in the style sheet

/** A slider over the steps, with a tick for each: shaped and coloured by its finish reason. */
function makeScrubber(store) {
  const slider = make("input", {
    type: "range",
    min: 1,
    step: 1,
    "aria-label": "Step",
    oninput: () => store.choose(Number(slider.value)),
  });
  const ticks = draw("svg", { "aria-hidden": "true", height: 32 });
  const track = make("div", { class: "page-track" }, slider, ticks);
  const label = make("span", { class: "page-step" });
  const go = (by) => () => store.choose(store.view.step + by);
  const button = (name, sign, by) =>
    make("button", { type: "button", class: "page-button icon", "aria-label": name, title: name, onclick: go(by) }, sign);
  const node = make(
    "div",
    { class: "page-scrubber", role: "group", "aria-label": "Steps" },
    button("Previous step", "\u2039", -1),
    track,
    button("Next step", "\u203a", 1),
    label,
  );
  let hits = new Set();
  let width = 0; // of the track, in pixels

  function redraw() {
    const run = store.run();
    if (!run || !width) return;
    ticks.setAttribute("width", width);
    ticks.replaceChildren(...ticksOf(run, width, hits));
  }
  function point() {
    const { step } = store.view;
    const steps = store.steps();
    node.hidden = steps.length === 0;
    slider.max = Math.max(1, steps.length);
    slider.value = step;
    label.textContent = `Step ${count(step)} of ${count(steps.length)}`;
    slider.setAttribute("aria-valuetext", [label.textContent, words(steps[step - 1]?.finish)].filter(Boolean).join(", "));
  }
  new ResizeObserver(([{ contentRect }]) => {
    width = Math.round(contentRect.width);
    redraw();
  }).observe(track);
  const drawn = part(node, (state) => [state.run, state.run?.steps], redraw);
  const chosen = part(node, (state) => [state.run, state.view.step], point);
  return {
    node,
    update: (state) => [chosen, drawn].forEach((one) => one.update(state)),
    mark(found) {
      hits = new Set(found);
      redraw();
    },
  };
}

/** Ticks, at most one for each few pixels: where several fall together, the gravest is shown. */
function ticksOf(run, width, hits) {
  const steps = run.steps.length;
  const x = (n) => (steps < 2 ? THUMB / 2 : THUMB / 2 + ((n - 1) * (width - THUMB)) / (steps - 1));
  const column = (n) => Math.round(x(n) / (steps > width / 9 ? 4 : 1));
  const columns = new Map();
  for (const step of run.steps) {
    const [shape, tone] = finishOf(step);
    const at = column(step.n);
    const there = columns.get(at);
    if (!there || RANK[tone] > RANK[there.tone]) columns.set(at, { n: step.n, shape, tone, hit: there?.hit || hits.has(step.n) });
    else if (hits.has(step.n)) there.hit = true;
  }
  const crowded = steps > width / 9;
  const found = [];
  for (const { n, shape, tone, hit } of columns.values()) {
    const place = `translate(${(x(n) - 4.5).toFixed(1)} 11.5) scale(.9)`;
    if (hit) found.push(draw("rect", { x: x(n) - 1.5, y: 1, width: 3, height: 30, class: "page-hit-tick" }));
    if (crowded && tone === "plain")
      found.push(draw("rect", { x: x(n) - 0.5, y: 13, width: 1, height: 6, class: "page-mark plain" }));
    else found.push(draw("path", { d: SHAPES[shape], transform: place, "fill-rule": "evenodd", class: `page-mark ${tone}` }));
  }
  const marks = new Map(run.marks.filter((one) => one.step >= 1 && one.step <= steps).map((one) => [column(one.step), one]));
  for (const one of marks.values()) {
    found.push(
      draw("path", {
        d: "M0 0h6l-3 5z",
        transform: `translate(${(x(one.step) - 3).toFixed(1)} 0)`,
        class: `page-mark ${one.kind === "warning" ? "warn" : "live"}`,
      }),
    );
  }
  return found;
}

// Search ---------------------------------------------------------------------------------------------------------------------

/**
 * A search box over the prompt and the texts of all steps of the open run.
 *
 * `onFound` gets the text and the steps with hits, `onGo` the step to show (0: the prompt); `onLeave` moves the focus on.
 */
function makeSearch(store, { onFound, onGo, onLeave }) {
  const input = make("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search the transcript",
    autocomplete: "off",
    spellcheck: "false",
  });
  const answer = make("output", { class: "page-found" });
  const button = (name, sign, by) =>
    make("button", { type: "button", class: "page-button icon", "aria-label": name, title: name, onclick: () => go(by) }, sign);
  const buttons = make(
    "span",
    { class: "page-search-go" },
    button("Previous hit", "\u2191", -1),
    button("Next hit", "\u2193", 1),
  );
  const node = make("div", { class: "page-search", role: "search" }, input, answer, buttons);
  let found = [];
  let foundOf = ""; // the text that `found` is of
  let waiting = 0;
  let round = 0;
  let wanted = false; // the first hit is to be shown as soon as it is known
  let shown = null; // the hit that was gone to

  /** The chosen step; 0 once the hit in the prompt was gone to, which cannot be chosen. */
  const here = () => (shown === 0 && store.view.step <= 1 ? 0 : store.view.step);
  function show() {
    const query = store.view.query.trim();
    const at = found.indexOf(here());
    const all = plural(found.length, found[0] === 0 ? "place" : "step");
    answer.textContent = !query ? "" : !found.length ? "no hits" : at < 0 ? all : `${count(at + 1)} of ${all}`;
    buttons.hidden = !found.length;
  }
  function goTo(n) {
    shown = n;
    onGo(n);
    show();
  }
  function go(by) {
    if (!found.length) return;
    const step = here();
    goTo(by > 0 ? (found.find((n) => n > step) ?? found[0]) : (found.findLast((n) => n < step) ?? found.at(-1)));
  }
  /** Thousands of steps are read in slices, so that typing is not held up. */
  async function look() {
    const mine = ++round;
    await null; // what the search leads to comes after the drawing that has started it
    if (mine !== round) return;
    const query = store.view.query.trim().toLowerCase();
    const hits = query && plain(store.run()?.prompt_html).includes(query) ? [0] : [];
    for (let from = 1; query && from !== null; ) {
      const answer = store.search(query, from);
      if (!answer) break;
      const { found: more, next } = await answer;
      if (mine !== round) return;
      hits.push(...more);
      from = next;
      if (from === null) return finish(query, hits);
    }
    let since = performance.now();
    for (const step of query ? store.steps() : []) {
      if (textOf(step).includes(query)) hits.push(step.n);
      if (performance.now() - since < 10) continue;
      await new Promise((resolve) => setTimeout(resolve));
      if (mine !== round) return;
      since = performance.now();
    }
    finish(query, hits);
  }
  function finish(query, hits) {
    found = hits;
    if (!found.includes(shown)) shown = null;
    foundOf = query;
    onFound(query, found);
    show();
    if (!wanted) return;
    wanted = false; // Enter was pressed before all was searched
    const from = store.view.step > 1 ? store.view.step : 0;
    if (found.length) goTo(found.find((n) => n >= from) ?? found[0]);
  }
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => store.set({ query: input.value }), 120);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      clearTimeout(waiting);
      const known = foundOf === input.value.trim().toLowerCase(); // new steps may still be searched
      if (!known) wanted = true;
      store.set({ query: input.value }); // which looks for it
      if (known) go(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      input.value = "";
      store.set({ query: "" });
      onLeave();
    }
  });
  const searched = part(node, (state) => [state.view.query, state.run?.steps], look);
  const pointed = part(node, (state) => [state.view.step], show);
  return { node, input, update: (state) => [searched, pointed].forEach((one) => one.update(state)) };
}
