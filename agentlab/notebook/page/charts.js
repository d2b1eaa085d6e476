// Charts of what a run has used so far, step by step, with the limit as a line; and the timeline of one step.

const PLOT = { height: 104, left: 2, right: 2, top: 16, bottom: 16 };

const MEASURES = [
  {
    title: "Tokens",
    unit: "tokens",
    field: "tokens",
    total: (step) => step.total_tokens,
    own: (step) => step.tokens,
    format: count,
  },
  {
    title: "Cost",
    unit: "usd",
    field: "cost_usd",
    total: (step) => step.total_cost_usd,
    own: (step) => step.cost_usd,
    format: dollars,
  },
];

/** The limit of a running total: of several the nearest. Other limits may have the same unit, such as one on the tokens of a step. */
function limitOf(run, { title, unit }) {
  const bounds = (row) => row.label === title && row.unit === unit && !row.off && known(row.limit) && known(row.share);
  return run.limits.filter(bounds).sort((a, b) => b.share - a.share)[0] || null;
}

/**
 * Return the chart of one measure: a part that follows the open run and the chosen step.
 *
 * The pointer reads values and chooses a step; so do the arrow keys, since the plot is a slider over the steps. With `onLimit` the line
 * of the limit can be dragged, or moved with the arrow keys: it is called with the limit's name and the new value.
 */
function makeChart(store, measure, onLimit) {
  const readout = make("output", { class: "page-readout" });
  const picture = draw("svg", { "aria-hidden": "true", height: PLOT.height });
  const reader = make("div", {
    class: "page-reader",
    role: "slider",
    tabindex: 0,
    "aria-label": `${measure.title} up to the chosen step`,
  });
  const plot = make("div", { class: "page-plot" }, picture, reader);
  const legend = make("div", { class: "page-legend" });
  const node = make(
    "figure",
    { class: "page-chart" },
    make("figcaption", {}, make("b", {}, measure.title), readout),
    plot,
    legend,
  );
  const cursor = draw("g", { class: "page-cursor" });
  const limitHandle = onLimit ? makeLimitHandle(store, plot, measure, onLimit, redraw) : null;
  let scale = null;
  let width = 0; // of the plot, in pixels; to read it while the page is being drawn would lay the page out once more
  let under = null; // the step under the pointer

  function redraw() {
    const run = store.run();
    const beside = runsBeside(store);
    if (!run || width === 0) return;
    scale = scaleOf(run, beside, measure, width, limitHandle?.reach());
    picture.setAttribute("width", width);
    picture.replaceChildren(
      ...frameOf(scale, measure),
      ...curvesOf(run, beside, scale, measure, (one) => lookOf(store, one)),
      ...limitLine(scale, measure, [run, ...beside]),
      cursor,
    );
    legend.replaceChildren(
      ...(beside.length ? [run, ...beside] : []).map((one) => {
        const line = draw("line", { x1: 0, x2: 24, y1: 2, y2: 2, class: lookOf(store, one) });
        return make("span", {}, draw("svg", { "aria-hidden": "true", width: 24, height: 4, class: "page-dash" }, line), one.name);
      }),
    );
    limitHandle?.place(scale);
    point();
  }

  function point() {
    const steps = store.steps();
    const at = under ?? store.view.step;
    const step = steps[at - 1];
    if (!scale) return;
    const total = step ? measure.total(step) : 0;
    const x = scale.x(at);
    cursor.replaceChildren(draw("line", { x1: x, x2: x, y1: PLOT.top, y2: PLOT.height - PLOT.bottom }));
    if (known(total)) cursor.append(draw("circle", { cx: x, cy: scale.y(total), r: 3.5 }));
    const more = step && known(measure.own(step)) ? ` (+${measure.format(measure.own(step))})` : "";
    readout.textContent = step ? `step ${count(at)}: ${measure.format(total)}${more}` : "no steps yet";
    const limit = scale.limit === null ? "" : `, limit ${measure.format(scale.limit)}`;
    dress(reader, {
      "aria-valuemin": Math.min(1, steps.length),
      "aria-valuemax": steps.length,
      "aria-valuenow": store.view.step,
      "aria-valuetext": `${readout.textContent}${limit}`,
    });
  }

  const stepAt = (event) => {
    const share = (event.clientX - reader.getBoundingClientRect().left - PLOT.left) / scale.width;
    return Math.max(1, Math.min(store.steps().length, Math.round(share * scale.steps)));
  };
  const hover = (step) => {
    under = step;
    point();
  };
  reader.addEventListener("pointermove", (event) => scale && store.steps().length && hover(stepAt(event)));
  reader.addEventListener("pointerleave", () => hover(null));
  reader.addEventListener("click", (event) => scale && store.choose(stepAt(event)));
  reader.addEventListener("keydown", (event) => chooseByKey(event, store));
  new ResizeObserver(([{ contentRect }]) => {
    width = Math.round(contentRect.width);
    redraw();
  }).observe(plot);

  const curve = part(node, (state) => [state.run, runsBeside(store).length, ...runsBeside(store)], redraw);
  const chosen = part(
    node,
    (state) => [state.run, state.view.step],
    () => hover(null),
  ); // a key counts more than a pointer at rest
  return { node, update: (state) => [curve, chosen].forEach((one) => one.update(state)) };
}

/** The runs whose curves are drawn beside that of the open run: all side by side, the compared one, or that which it branched from. */
function runsBeside(store) {
  const run = store.run();
  const other = store.run(store.view.compare) || (run && known(run.forked_at) ? store.run(run.parent) : null);
  const others = areBeside(store.view) ? store.view.all.runs.map(store.run) : [other];
  return others.filter((one) => one && one !== run && one.steps.length);
}

/** The classes with the colour and the dashes of a run, by its place in the page: the same in all charts, as in the plots of Python. */
function lookOf(store, run) {
  const place = store.runs().findIndex((one) => one.id === run.id);
  return `r${place % 6} d${((place % 6) + Math.floor(place / 6)) % 4}`;
}

/**
 * Steps to x and values to y. A limit that is far above the curve would flatten it: then it is named at the upper edge. `reach` is what
 * the upper edge means at least, while the limit is dragged.
 */
function scaleOf(run, beside, measure, width, reach = 0) {
  const last = [run, ...beside].flatMap((one) => one.steps.map(measure.total).filter(known));
  const used = last.reduce((most, value) => Math.max(most, value), 0);
  const row = limitOf(run, measure);
  const limit = row ? row.limit : null;
  const seen = limit !== null && (used === 0 || limit <= 5 * used);
  const most = Math.max(used * 1.08, reach || (seen ? limit * 1.08 : 0)) || 1;
  const steps = Math.max(run.steps.length, ...beside.map((one) => one.steps.length), 1);
  const inner = width - PLOT.left - PLOT.right;
  const high = PLOT.height - PLOT.top - PLOT.bottom;
  return {
    most,
    steps,
    limit,
    seen,
    row,
    used,
    over: run.state === "ended",
    width: inner,
    own: run.totals[measure.field],
    unknown: run.steps.length > 0 && !last.length,
    x: (step) => PLOT.left + (inner * step) / steps,
    y: (value) => PLOT.height - PLOT.bottom - (high * Math.min(value, most)) / most,
    valueAt: (y) => Math.max(0, ((PLOT.height - PLOT.bottom - y) / high) * most),
    edge: PLOT.top - 4,
  };
}

function frameOf(scale, measure) {
  const foot = PLOT.height - PLOT.bottom;
  const label = (x, anchor, text) => draw("text", { x, y: PLOT.height - 3, "text-anchor": anchor, class: "page-tick" }, text);
  const right = PLOT.left + scale.width;
  return [
    draw("line", { x1: PLOT.left, x2: right, y1: foot, y2: foot, class: "page-axis" }),
    label(PLOT.left, "start", "0"),
    label(right, "end", `step ${count(scale.steps)}`),
    scale.own > 0 ? label(PLOT.left + scale.width / 2, "middle", `used ${measure.format(scale.own)}`) : null,
    scale.unknown
      ? draw(
          "text",
          { x: PLOT.left + scale.width / 2, y: foot - 32, "text-anchor": "middle", class: "page-tick unknown" },
          "not reported",
        )
      : null,
  ].filter(Boolean);
}

/** The curves, with at most one point for each pixel; an unknown total leaves a gap. Of several runs, each has its own look. */
function curvesOf(run, beside, scale, measure, lookOfRun) {
  const points = (one) => {
    const every = Math.max(1, Math.ceil(one.steps.length / scale.width));
    const found = [[scale.x(0), scale.y(0)]];
    one.steps.forEach((step, place) => {
      if (place % every && place !== one.steps.length - 1) return;
      const total = measure.total(step);
      found.push(known(total) ? [scale.x(place + 1), scale.y(total)] : null);
    });
    return found;
  };
  const line = (found) =>
    found
      .map((at, place) => (at ? `${place && found[place - 1] ? "L" : "M"}${at[0].toFixed(1)} ${at[1].toFixed(1)}` : ""))
      .join("");
  const own = points(run);
  const shapes = [];
  if (own.length > 1 && own.every(Boolean)) {
    const foot = PLOT.height - PLOT.bottom;
    shapes.push(
      draw("path", { d: `${line(own)}L${own.at(-1)[0].toFixed(1)} ${foot}L${own[0][0]} ${foot}z`, class: "page-area" }),
    );
  }
  shapes.push(...beside.map((one) => draw("path", { d: line(points(one)), class: `page-curve beside ${lookOfRun(one)}` })));
  shapes.push(draw("path", { d: line(own), class: beside.length ? `page-curve ${lookOfRun(run)}` : "page-curve" }));
  return shapes;
}

/** The line of the limit and its label, at an end and on a side of the line where no curve passes if there is one. */
function limitLine(scale, measure, runs) {
  if (scale.limit === null) return [];
  const right = PLOT.left + scale.width;
  const y = scale.seen ? scale.y(scale.limit) : PLOT.top - 4;
  const text = scale.seen ? `limit ${measure.format(scale.limit)}` : `limit ${measure.format(scale.limit)} \u2191`;
  const yAt = (one, x) => {
    const at = ((x - PLOT.left) / scale.width) * scale.steps;
    const totals = [Math.floor(at), Math.ceil(at)].map((n) => (n ? one.steps[n - 1] && measure.total(one.steps[n - 1]) : 0));
    return totals.every(known) ? scale.y(totals[0] + (at % 1) * (totals[1] - totals[0])) : NaN;
  };
  const isFree = ([anchor, foot]) => {
    const width = 6.5 * text.length;
    const from = anchor === "end" ? right - width : PLOT.left;
    const passed = runs.flatMap((one) => Array.from({ length: 33 }, (_, n) => yAt(one, from + (width * n) / 32)));
    return !passed.some((at) => at > foot - 12 && at < foot + 4);
  };
  const places = [y - 4, ...(y + 13 < PLOT.height - PLOT.bottom ? [y + 13] : [])].flatMap((foot) => ["end", "start"].map((anchor) => [anchor, foot]));
  const [anchor, foot] = places.find(isFree) || places[0];
  return [
    scale.seen ? draw("line", { x1: PLOT.left, x2: right, y1: y, y2: y, class: "page-limit-line" }) : null,
    draw("text", { x: anchor === "end" ? right : PLOT.left, y: foot, "text-anchor": anchor, class: "page-tick limit" }, text),
  ].filter(Boolean);
}

/** How far above the curve a limit can be dragged from the upper edge, where it is if it is far above: times what is used. */
const FAR = 4;

/**
 * The handle on the line of the limit: dragged up and down, or moved by a twentieth with the arrow keys. Escape leaves it where it was.
 *
 * While it is held, steps may arrive: the scale and the place of the handle stay as they are. Its words say the value, and that the run
 * ends if that much is used already.
 */
function makeLimitHandle(store, plot, measure, onLimit, redraw) {
  const node = make("div", { class: "page-handle", role: "slider", tabindex: 0, "aria-orientation": "vertical", hidden: true });
  let scale = null;
  let value = null;
  let held = null; // where it was grasped; NaN once it has been moved
  let reach = 0; // what the upper edge means while it is held
  let byKey = false; // it has the focus and is moved with keys: then its words stay
  let sent = null; // the limit before the one that was sent, until the new one is in force

  function show(wanted) {
    const isFar = wanted >= scale.most && !scale.seen;
    const round = Number(wanted.toPrecision(3));
    value = wanted === scale.limit ? wanted : measure.unit === "usd" ? round || 1e-6 : Math.max(1, Math.round(round));
    const y = isFar ? scale.edge : scale.y(value);
    const ends = value <= scale.used && scale.used > 0 && !scale.over;
    const text = `${measure.format(value)}${ends ? " \u2013 ends the run at the next step" : ""}`;
    node.style.top = `${y}px`;
    node.classList.toggle("far", isFar);
    node.classList.toggle("ends", ends && (held !== null || sent !== null || byKey));
    node.classList.toggle("named", held !== null || byKey);
    node.classList.toggle("low", y < 30);
    dress(node, {
      "aria-valuenow": value,
      "aria-valuemax": Math.max(scale.most, value),
      "aria-valuetext": `limit ${text}`,
      "data-value": text,
    });
  }
  function release() {
    held = null;
    if (sent === null) reach = 0;
    node.classList.remove("held");
    redraw();
  }
  function send() {
    if (value === scale.limit) return;
    sent = scale.limit;
    onLimit(scale.row.key || scale.row.name, value).catch((error) => {
      sent = null;
      reach = 0;
      store.set({ fault: error.message });
      redraw();
    });
  }
  node.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    node.setPointerCapture(event.pointerId);
    node.focus({ preventScroll: true });
    held = event.clientY;
    byKey = false;
    reach = scale.seen ? scale.most : FAR * scale.used;
    node.classList.add("held");
    redraw();
  });
  node.addEventListener("pointermove", (event) => {
    if (held === null || Math.abs(event.clientY - held) < 2) return;
    held = NaN; // from now on, each movement counts
    const y = event.clientY - plot.getBoundingClientRect().top;
    show(!scale.seen && y <= scale.edge ? scale.limit : scale.valueAt(y));
  });
  node.addEventListener("pointerup", () => {
    if (held === null) return;
    send();
    release();
  });
  node.addEventListener("pointercancel", () => held !== null && release());
  node.addEventListener("focus", () => {
    byKey = node.matches(":focus-visible");
    redraw();
  });
  node.addEventListener("blur", () => {
    byKey = false;
    redraw();
  });
  node.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && held !== null) {
      event.preventDefault();
      event.stopPropagation();
      release();
      return;
    }
    const by = { ArrowUp: 1.05, ArrowRight: 1.05, ArrowDown: 0.95, ArrowLeft: 0.95 }[event.key];
    if (!by) return;
    event.preventDefault();
    byKey = true;
    const one = measure.unit === "usd" ? 0 : 1;
    show(by > 1 ? Math.max(value * by, value + one) : Math.min(value * by, value - one));
    send();
  });
  plot.append(node);
  return {
    reach: () => reach,
    place(now) {
      scale = now;
      node.hidden = now.limit === null || now.over;
      if (node.hidden) {
        held = sent = null; // the run has ended: what is dragged is let go
        byKey = false;
        reach = 0;
        node.classList.remove("held", "ends", "named");
        return;
      }
      dress(node, { "aria-label": `Limit: ${now.row.label}`, "aria-valuemin": 0 });
      if (sent !== null && now.limit !== sent) {
        sent = null;
        if (held === null && reach) {
          reach = 0;
          redraw();
          return;
        }
      }
      show(Number.isNaN(held) || sent !== null ? value : now.limit);
    },
  };
}

/** Choose another step with the keys of a slider. */
function chooseByKey(event, store) {
  const { step } = store.view;
  const far = Math.max(1, Math.round(store.steps().length / 10));
  const to = {
    ArrowLeft: step - 1,
    ArrowDown: step - 1,
    ArrowRight: step + 1,
    ArrowUp: step + 1,
    PageDown: step - far,
    PageUp: step + far,
    Home: 1,
    End: Infinity,
  }[event.key];
  if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  store.choose(to);
}

// The timeline of a step -----------------------------------------------------------------------------------------------------

const SPAN_WORDS = { call: "model", tool: "tool", child: "sub-agent" };

/** Bars for what took the time of a step, on one axis; null if no times are known. */
function timelineOf(step) {
  const spans = step.spans.filter((span) => known(span.start_s) && known(span.end_s));
  if (!spans.length) return null;
  const from = Math.min(...spans.map((span) => span.start_s));
  const whole = Math.max(...spans.map((span) => span.end_s), from + (step.duration_s || 0)) - from || 1;
  const bars = spans.slice(0, MOST_SPANS).map((span) => {
    const left = (100 * (span.start_s - from)) / whole;
    const width = Math.max(0.8, (100 * (span.end_s - span.start_s)) / whole);
    const bar = make("span", { class: `page-span ${SPAN_WORDS[span.kind] ? span.kind : ""}` });
    bar.style.marginLeft = `${Math.min(left, 99.2)}%`;
    bar.style.width = `${Math.min(width, 100 - left)}%`;
    return make(
      "li",
      {},
      make(
        "span",
        { class: "page-span-name" },
        make("small", {}, SPAN_WORDS[span.kind] || words(span.kind)),
        " ",
        make("bdi", {}, span.label),
      ),
      make("span", { class: "page-span-track" }, bar),
      make("span", { class: "page-span-time" }, seconds(span.end_s - span.start_s)),
    );
  });
  const left = spans.length - bars.length;
  return make(
    "ol",
    { class: "page-timeline", "aria-label": `What took the time of step ${step.n}` },
    bars,
    left > 0 ? make("li", {}, `and ${plural(left, "other part")}`) : null,
  );
}

const MOST_SPANS = 24;
