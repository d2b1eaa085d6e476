// The limits and the stop condition of the open run, to be edited while it runs.
//
// Rows and controls stay in the page while values change, so that the focus and what is typed stay; they are made anew for another run.

const TITLES = { steps: "Steps", calls: "Model calls", tokens: "Tokens", cost: "Cost", time: "Time" };
const WHOLE_CONDITION = "the whole condition";

/**
 * The editor in the drawer: one row for each thing that is limited, then the other conditions. `rest` has what is rarely changed, in
 * folds.
 */
function makeSettings(store, send) {
  const body = make("div", { class: "page-settings" });
  const rest = make("div", { class: "page-section page-settings", "data-section": "rest" });
  const { node, aside } = section("Limits", body, { name: "limits" });
  dress(aside, { role: "status" });
  let form = null;
  const drawn = part(
    node,
    ({ run }) => [run?.id, run?.settings, run?.limits],
    ({ run }) => {
      node.hidden = rest.hidden = !run?.settings;
      if (!run?.settings) return;
      if (form?.run !== run.id) {
        form = makeForm((message) => send({ ...message, run: run.id }), run.id);
        body.replaceChildren(form.node);
        rest.replaceChildren(form.folds);
      }
      form.update(run);
      write(aside, run.settings.editable ? run.settings.note : ""); // here nothing below it moves
    },
  );
  return { ...drawn, rest };
}

function makeForm(ask, id) {
  const kept = new Map();
  let run = null;
  let wanted = null; // the new limit or condition that gets the focus when it is shown
  let added = { name: null, note: "" }; // the last one, and why it is turned off

  const note = make("p", { class: "page-settings-note", role: "status" });
  const fault = make("p", { class: "page-refused", role: "alert" });
  const limits = make("ul", { class: "page-limit-rows" });
  const conditions = make("ul", { class: "page-limit-rows" });
  const adder = makeAdder(true);
  const folds = make("div", { class: "page-folds" });
  const node = make("div", {}, note, limits, conditions, adder.node, fault);

  /** The part of this name; it is made the first time. */
  function keep(name, create) {
    if (!kept.has(name)) kept.set(name, create());
    return kept.get(name);
  }
  /** Ask for a change of something other than a value; a refusal is shown at the end of the list. */
  function change(message) {
    write(fault, "");
    return ask(message).catch((error) => {
      fault.textContent = error.message;
      throw error;
    });
  }
  const changeTree = (what, path, more = {}) => change({ do: what, path, shape: run.settings.shape, ...more });
  const quietly = (promise) => promise.catch(() => {});
  const redraw = () => run && update(run);

  function controlOf(at, field, name) {
    const key = JSON.stringify(at);
    const control = keep(`${key} ${field.control} ${field.long}`, () =>
      makeControl(field, (value) => ask({ do: "set", at, value })),
    );
    control.update(field, name, run.settings.editable);
    return control;
  }

  /** A control that adds a limit or a condition, to the whole or to a group. */
  function makeAdder(whole) {
    let path = [];
    let listed = "";
    const kind = make("select", { class: "page-input" });
    const button = make("button", { type: "button", class: "page-button", onclick: add }, "Add");
    function add() {
      if (!kind.value) {
        kind.focus();
        return;
      }
      quietly(
        changeTree("add", path, { kind: kind.value }).then((answer) => {
          added = answer;
          wanted = answer.name;
          kind.value = "";
          redraw();
        }),
      );
    }
    return {
      node: make("div", { class: "page-adder" }, kind, button),
      update(settings, name, at) {
        path = at;
        const unset = whole ? settings.budget.filter((field) => field.value === null) : [];
        const groups = [
          ["Limit", unset.map((field) => [field.name, `${titleOf(field)} (${field.name})`])],
          ["Stop condition", settings.kinds.map((one) => [one, one])],
          ["Group of conditions", ["any of", "all of"].map((one) => [one, `${one} …`])],
        ].filter(([, options]) => options.length);
        if (JSON.stringify(groups) !== listed) {
          listed = JSON.stringify(groups);
          const chosen = kind.value;
          const option = ([value, text]) => make("option", { value }, text);
          const first = whole ? "Add a limit or a condition \u2026" : "Add a condition \u2026";
          kind.replaceChildren(
            option(["", first]),
            ...groups.map(([label, options]) => make("optgroup", { label }, options.map(option))),
          );
          kind.value = groups.some(([, options]) => options.some(([value]) => value === chosen)) ? chosen : "";
        }
        dress(kind, { "aria-label": whole ? "Limit or condition to add" : `Condition to add to ${name}` });
        dress(button, { "aria-label": whole ? "Add" : `Add to ${name}` });
        kind.disabled = button.disabled = !settings.editable;
      },
    };
  }

  // Rows of what is limited ---------------------------------------------------------------------------------------------------

  /** A limit of the budget, or a condition on the same total. */
  function memberOf(source, node) {
    if (!node) {
      const control = controlOf(["budget", source.name], source, source.name);
      return { name: source.name, control, off: false, help: source.help, extra: control.extra };
    }
    const [field] = node.fields;
    const control = controlOf(["stop", node.name, field.name], field, node.name);
    return { name: node.name, control, off: node.off, help: field.help, extra: flagsOf(node, node.name) };
  }

  /** The ticks and the button of a condition: on, not, remove. */
  function flagsOf(node, name) {
    const { editable } = run.settings;
    const flags = keep(`flags ${node.group ? node.path : node.name}`, () => ({
      on: makeTick("on", (on) => changeTree("switch", flags.path, { on })),
      not: makeTick("not", (on) => changeTree("negate", flags.path, { on })),
      remove: make(
        "button",
        { type: "button", class: "page-link", onclick: () => quietly(changeTree("remove", flags.path)) },
        "Remove",
      ),
    }));
    flags.path = node.path;
    flags.on.update(!node.off, `Use ${name}`, editable);
    flags.not.update(node.negated, `not ${name}`, editable);
    flags.remove.disabled = !editable;
    dress(flags.remove, { "aria-label": `Remove ${name}` });
    return [flags.on.node, flags.not.node, flags.remove];
  }

  const noteOn = ({ name, off }) => (off && name === added.name ? added.note : "");
  const rowOf = (name) => run.limits.find((row) => row.key === name);

  /** One row for each thing that is limited: the number of the limit that comes first, and all of them below. */
  function limitRow(total, members, unit) {
    const row = keep(`total ${total}`, () => makeRow(redraw));
    const names = members.map((member) => member.name);
    const applies =
      run.limits.find((one) => !one.off && names.includes(one.key)) ||
      run.limits.find((one) => !one.off && one.with.some((name) => names.includes(name)));
    if (names.includes(wanted) && names.length > 1) row.unfold();
    row.update(TITLES[total] || capital(total));
    const first = members.find((member) => member.name === applies?.key) || members[0];
    const focused = members.find((member) => row.slot.contains(member.control.node) && member.control.input.matches(":focus"));
    const head = row.isOpen() ? null : focused || first;
    const value = applies && applies.value !== null ? amount(applies.value, unit) : "";
    const closed = value && head ? `${value} of` : "";
    write(row.used, head ? closed : applies ? usedOf(applies) : "");
    arrange(row.slot, head?.control.node);
    const state = applies && !applies.off && applies.met ? "reached" : "";
    row.node.className = `page-limit ${state} ${first.off && head ? "off" : ""}`;
    arrange(
      row.refusals,
      members.map((member) => member.control.refusal),
    );
    write(
      row.about,
      [state, first.off && head ? "off" : "", applies?.order, ...members.map(noteOn)].filter(Boolean).join(". "),
    );
    if (applies && known(applies.share)) row.meter.replaceChildren(meterOf(applies));
    else row.meter.replaceChildren();
    keep(`typed ${total}`, () => {
      row.node.addEventListener("page-typed", ({ target, detail }) => warn(row, detail ? target : null));
      return true;
    });
    row.soFar = applies?.value;
    if (row.isOpen())
      arrange(
        row.more,
        members.map((member) => lineOf(member)),
      );
    return row.node;
  }

  /** While a number is typed: say so if it would end the run. */
  function warn(row, input) {
    const number = Number(input?.value.replace(/[$,_\s]/g, "") || NaN);
    const below = number > 0 && known(row.soFar) && number <= row.soFar;
    write(row.hint, below ? "Already used: the run ends at the next step." : "");
  }

  /** What is shown of a limit where there is room. */
  function lineOf({ name, control, help, extra }, of = "") {
    const line = keep(`line ${name} ${of}`, () => {
      const title = make("b");
      const about = make("small");
      const slot = make("span");
      const ticks = make("div", { class: "page-ticks" });
      return { node: make("div", { class: "page-line" }, title, slot, about, ticks), title, about, slot, ticks };
    });
    write(line.title, name);
    write(line.about, help);
    arrange(line.slot, control.node);
    arrange(line.ticks, extra);
    return line.node;
  }

  /** A number of the budget that limits no total. */
  function plainRow(field) {
    const row = keep(`plain ${field.name}`, () => makeRow(redraw));
    const control = controlOf(["budget", field.name], field, field.name);
    row.update(titleOf(field));
    write(row.code, field.name);
    arrange(row.slot, control.node);
    arrange(row.refusals, control.refusal);
    if (row.isOpen())
      arrange(row.more, make("small", {}, capital(field.help)), make("div", { class: "page-ticks" }, control.extra));
    return row.node;
  }

  // The other conditions, as a tree -------------------------------------------------------------------------------------------

  function conditionRow(node) {
    const row = keep(`condition ${node.name}`, () => makeRow(redraw));
    const reading = rowOf(node.name);
    const label = (reading?.label || node.name).replace(/^not: /, "");
    const name = label === "Finish reason" ? `${label} ${node.fields[0]?.value}` : label;
    const fitsHead = node.fields.length === 1 && node.fields[0].control === "number";
    if (wanted === node.name && node.fields.length && !fitsHead) row.unfold();
    row.update(`${node.negated ? "not: " : ""}${name}`);
    write(row.code, name === node.name ? (node.own ? "your function" : "") : node.total ? "" : node.name);
    const controls = node.fields.map((field) =>
      controlOf(["stop", node.name, field.name], field, node.fields.length > 1 ? `${field.name} of ${node.name}` : node.name),
    );
    const [on, not, remove] = flagsOf(node, node.name);
    arrange(row.lead, on);
    const inHead = !row.isOpen() && fitsHead;
    arrange(row.slot, inHead && controls[0].node);
    const value = reading && known(reading.value) && inHead ? `${amount(reading.value, reading.unit)} of` : "";
    write(row.used, node.off ? "off" : inHead ? value : reading ? readingOf(reading) : "");
    row.node.className = `page-limit condition ${node.off ? "off" : ""} ${reading?.met && !node.off ? "reached" : ""}`;
    row.meter.replaceChildren(...(reading && known(reading.share) && !reading.goal && !node.off ? [meterOf(reading)] : []));
    write(row.about, node.why_never ? `Can never be met: ${node.why_never}` : noteOn(node));
    row.about.classList.toggle("warn", !!node.why_never);
    arrange(
      row.refusals,
      controls.map((one) => one.refusal),
    );
    if (row.isOpen()) {
      const lines = node.fields.map((field, place) =>
        lineOf({ ...field, control: controls[place], extra: controls[place].extra }, node.name),
      );
      const flags = keep(`more ${node.name}`, () => make("div", { class: "page-ticks" }));
      arrange(row.more, lines, arrange(flags, not, remove));
    }
    return row.node;
  }

  const readingOf = (reading) =>
    reading.value === null && !reading.met
      ? "not read yet"
      : typeof reading.limit === "string" && !reading.goal
        ? `last: ${words(String(reading.value))}${reading.met ? ", met" : ""}`
        : usedOf(reading);

  /** A group with its parts below; of the whole condition, `elsewhere` are those that are shown with the budget. */
  function groupRow(node, parts, name, elsewhere) {
    const whole = node.path.length === 0;
    const group = keep(`group ${node.path}`, () => {
      const { path } = node;
      const row = makeRow(redraw);
      const kind = make(
        "select",
        {
          class: "page-input",
          onchange: () => changeTree("regroup", path, { group: kind.value }).catch(() => (kind.value = group.shown)),
        },
        ["any of", "all of"].map((one) => make("option", {}, one)),
      );
      const rest = make("span");
      row.node.className = `page-group ${whole ? "whole" : ""}`;
      row.title.replaceWith(whole ? "Stop when " : "", kind, " ", rest);
      const list = make("ul", { class: "page-limit-rows" });
      row.node.append(list);
      return { row, kind, rest, list, ticks: make("div", { class: "page-ticks" }), adder: whole ? null : makeAdder(false) };
    });
    group.row.update(name);
    if (node.group !== group.shown) group.kind.value = group.shown = node.group;
    group.kind.disabled = !run.settings.editable;
    write(group.rest, parts.length ? "these hold" : `${elsewhere} hold`);
    write(group.row.about, parts.length && elsewhere ? `Among them, above: ${elsewhere}.` : "");
    write(group.row.used, [node.negated ? "not" : "", node.off ? "off" : ""].filter(Boolean).join(", "));
    dress(group.kind, { "aria-label": `${name} is met by` });
    arrange(group.row.more, arrange(group.ticks, flagsOf(node, name)), group.adder?.node);
    arrange(group.list, parts);
    group.adder?.update(run.settings, name, node.path);
    group.row.node.classList.toggle("off", node.off);
    return group.row.node;
  }

  function rowsOf(tree) {
    const groups = tree.filter((node) => node.group && node.path.length);
    const [root] = tree;
    const plain = root && (!root.group || (root.group === "any of" && !root.negated && !root.off));
    const ofBudget = (node) =>
      plain &&
      !node.group &&
      node.total &&
      !node.negated &&
      node.fields.length === 1 &&
      node.path.length === (root.group ? 1 : 0);
    const withBudget = tree.filter(ofBudget);
    const draw = (node) => {
      if (!node.group) return conditionRow(node);
      const depth = node.path.length;
      const parts = tree.filter(
        (one) => one.path.length === depth + 1 && node.path.every((at, place) => one.path[place] === at),
      );
      const name = depth ? `group ${groups.indexOf(node) + 1}` : WHOLE_CONDITION;
      const elsewhere = depth ? "" : withBudget.map((one) => one.name).join(", ");
      return groupRow(node, parts.filter((one) => !withBudget.includes(one)).map(draw), name, elsewhere);
    };
    const nothingElse = !root || withBudget.length === tree.length || (withBudget.length === 1 && tree.length === 2);
    return { withBudget, others: nothingElse ? [] : [draw(root)] };
  }

  // Folds -----------------------------------------------------------------------------------------------------------------------

  function foldOf(title, summary, ...content) {
    const fold = keep(`fold ${title}`, () => {
      const aside = make("span", { class: "page-aside" });
      const body = make("div", { class: "page-fold-body" });
      return { node: make("details", { class: "page-part" }, make("summary", {}, title, aside), body), aside, body };
    });
    write(fold.aside, summary);
    arrange(fold.body, content);
    return fold.node;
  }

  const sentence = (key, text) => {
    const node = keep(`text ${key}`, () => make("p", { class: "page-limit-about" }));
    write(node, text);
    return node;
  };

  function tickOf(key, word, on, editable, act) {
    const tick = keep(`tick ${key}`, () => makeTick(word, act));
    tick.update(on, "", editable);
    return tick.node;
  }

  function fieldsOf(part, fields, editable) {
    return fields.map((field) => {
      const control = controlOf([part, field.name], field, field.name);
      control.input.disabled = !editable;
      const line = keep(`field ${part} ${field.name}`, () =>
        make(
          "div",
          { class: `page-line ${field.long ? "long" : ""}` },
          make("b", {}, capital(words(field.label))),
          control.node,
          make("small", {}, field.help),
          make("div", { class: "page-ticks" }, control.extra),
          control.refusal,
        ),
      );
      return line;
    });
  }

  function approveFold({ approve, editable }) {
    const some = approve.tools.filter((tool) => tool.on).map((tool) => tool.name);
    const asked = (part) => (on) => change({ do: "approve", part, on });
    return foldOf(
      "Ask me before",
      [approve.every ? "every tool" : some.join(", "), ...approve.others].filter(Boolean).join(", ") || "nothing",
      sentence("approve", "The run waits for your word before it calls a ticked tool."),
      tickOf("approve *", "every tool", approve.every, editable, asked("*")),
      approve.tools.map(({ name, on }) => tickOf(`approve tool ${name}`, name, on, editable && !approve.every, asked(name))),
      approve.others.map((part) => tickOf(`approve other ${part}`, part, true, editable, asked(part))),
    );
  }

  function terminatingFold({ terminating, editable }) {
    const held = terminating.tools.filter((tool) => tool.on).map((tool) => tool.name);
    const about = !terminating.tools.length
      ? "The agent has no tools: a plain answer ends the run."
      : held.length
        ? "The run ends when a ticked tool was called; a plain answer is followed by a reminder."
        : "A plain answer ends the run. Tick the tools that end it instead:";
    return foldOf(
      "Terminating tools",
      held.join(", ") || "none",
      sentence("terminating", about),
      terminating.tools.map(({ name, on }) =>
        tickOf(`terminating ${name}`, name, on, editable, (now) => change({ do: "terminating", tool: name, on: now })),
      ),
      held.length ? fieldsOf("terminating", terminating.fields, editable) : [],
    );
  }

  function continuationFold({ continuation, editable }) {
    const most = continuation.find((field) => field.name === "max_continuations_per_turn")?.value;
    const summary = most === "0" ? "not continued" : `continued up to ${most} ${most === "1" ? "time" : "times"}`;
    return foldOf("Cut answers", summary, fieldsOf("continuation", continuation, editable));
  }

  function update(now) {
    run = now;
    const { settings } = run;
    write(note, settings.editable ? "" : settings.note);
    const { withBudget, others } = rowsOf(settings.tree);
    const totals = new Map();
    const put = (total, unit, member) => totals.set(total, { unit, members: [...(totals.get(total)?.members || []), member] });
    const set = settings.budget.filter((field) => field.value !== null && field.total);
    for (const field of set) put(field.total, field.unit, memberOf(field));
    for (const node of withBudget) put(node.total, node.fields[0].unit, memberOf(null, node));
    const order = Object.keys(TITLES).filter((total) => totals.has(total));
    arrange(
      limits,
      order.map((total) => limitRow(total, totals.get(total).members, totals.get(total).unit)),
      settings.budget.filter((field) => field.value !== null && !field.total && field.control === "number").map(plainRow),
    );
    arrange(conditions, others);
    conditions.hidden = !others.length;
    adder.update(settings, WHOLE_CONDITION, []);
    adder.node.hidden = !settings.editable;
    const choices = settings.budget.filter((field) => field.control !== "number");
    arrange(
      folds,
      approveFold(settings),
      terminatingFold(settings),
      continuationFold(settings),
      choices.map((field) => foldOf(titleOf(field), words(field.value), fieldsOf("budget", [field], settings.editable))),
    );
    if (wanted !== null) goTo(wanted);
  }

  /** Give the focus to the control of a new limit or condition. */
  function goTo(name) {
    const fits = ({ dataset }) => dataset.name === name || dataset.name?.endsWith(` of ${name}`);
    const inputs = [...node.querySelectorAll(".page-limit input, .page-limit select")];
    const found = inputs.find(fits) || inputs.find((input) => input.getAttribute("aria-label") === `Use ${name}`);
    if (!found) return;
    wanted = null;
    found.focus();
    found.select?.();
    found.scrollIntoView({ block: "nearest" });
  }

  return { node, folds, run: id, update };
}

/** What a setting of the budget limits, in words. */
const titleOf = (field) => TITLES[field.total] || capital(words(field.label));
