// Branches: made from any step of the open run, and how code gets hold of a run. Several runs side by side.

// The form -------------------------------------------------------------------------------------------------------------------

/** The forms of each page that were opened, by run and step. They outlive the items that they are in: what was typed stays while the list drops these. */
const branchForms = new WeakMap();

/** The button below a step (0: below the prompt) that makes a branch there; null in a file. */
function branchHere(store, run, step, send) {
  if (!send) return null;
  const key = `${run.id}/${step}`;
  const forms = branchForms.get(store) || new Map();
  branchForms.set(store, forms);
  const keep = (node) => (node ? forms.set(key, node) : forms.delete(key));
  return forms.get(key) || makeBranchForm(store, run.id, step, send, keep);
}

function makeBranchForm(store, runId, step, send, keep) {
  const name = step ? `Branch after step ${count(step)}` : "Branch from the prompt";
  const button = make("button", { type: "button", class: "page-button page-branch-here", "aria-expanded": "false" }, "Branch here");
  button.setAttribute("aria-label", `Branch here: ${step ? `after step ${step}` : "from the prompt"}`);
  const form = make("form", { class: "page-branch-form", "aria-label": name, novalidate: true, hidden: true });
  const node = make("div", { class: "page-branching" }, button, form);
  let offered = null;

  async function open() {
    offered ??= await send({ do: "branch_form", run: runId, step });
    keep(node);
    if (!form.firstChild) fillBranchForm(form, name, step, offered, { send: submit, close });
    show(true);
    form.querySelector("textarea, select").focus();
    form.scrollIntoView({ block: "nearest" });
  }
  function show(on) {
    form.hidden = !on;
    button.hidden = on;
    node.classList.toggle("open", on);
    button.setAttribute("aria-expanded", String(on));
  }
  function close() {
    show(false);
    button.focus();
  }
  async function submit(changes) {
    const frame = node.closest(".page-frame");
    await send({ do: "branch", run: runId, step, ...changes });
    keep(null); // the next branch from here begins with an empty form
    show(false);
    frame?.querySelector(".page-tools .page-controls button:not([aria-disabled='true'])")?.focus();
  }
  button.addEventListener("click", () =>
    form.hidden ? open().catch((error) => store.set({ fault: error.message })) : close(),
  );
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    event.stopPropagation(); // keys in the form are not those of the transcript
  });
  return node;
}

/** Put the fields into a form: the results of the step's tools or the prompt, a message, and who answers. */
function fillBranchForm(form, name, step, offered, { send, close }) {
  const edits = offered.results.map((result) => [result.id, makeEdit(result.label, result)]);
  const prompt = offered.prompt && makeEdit("Prompt", offered.prompt);
  const message = make("textarea", { rows: 2 });
  const model = make(
    "select",
    {},
    make("option", { value: "" }, `the same (${offered.model})`),
    offered.agents.map((agent, place) => make("option", { value: place }, `agent ${agent}`)),
    make("option", { value: "another" }, "another model \u2026"),
  );
  const another = make("input", { type: "text", placeholder: "provider:model", autocomplete: "off", spellcheck: "false" });
  another.setAttribute("aria-label", "Another model, as provider:model");
  another.hidden = true;
  model.addEventListener("change", () => {
    another.hidden = model.value !== "another";
    if (!another.hidden) another.focus();
  });
  const error = make("span", { class: "page-branch-error", role: "alert" });
  const ready = make("button", { type: "submit", class: "page-button main" }, "Branch");
  const cancel = make("button", { type: "button", class: "page-button", onclick: close }, "Cancel");
  const keeps = step ? `keeps ${step > 1 ? `steps 1 to ${count(step)}` : "step 1"}, and waits for Run` : "keeps no step, and waits for Run";
  const needed = offered.needs_message ? " (needed: the model finished with this step)" : "";
  form.append(
    make("p", {}, make("b", {}, name), make("span", { class: "page-quiet" }, ` ${keeps}`)),
    ...edits.map(([, edit]) => edit.node),
    prompt?.node || "",
    labelled(`One more message to the model${needed}`, message),
    make("div", { class: "page-branch-row" }, labelled("Model", model), another),
    make("div", { class: "page-branch-row" }, ready, cancel, error),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (ready.disabled) return;
    if (offered.needs_message && !message.value.trim()) {
      error.textContent = "Write a message: the model finished with this step, so there is nothing to ask it.";
      message.focus();
      return;
    }
    const edited = edits.filter(([, edit]) => edit.changed()).map(([id, edit]) => [id, edit.text()]);
    const changes = {
      ...(edited.length ? { tool_results: Object.fromEntries(edited) } : {}),
      ...(prompt?.changed() ? { prompt: prompt.text() } : {}),
      ...(message.value.trim() ? { message: message.value } : {}),
      ...(model.value === "another" ? { model: another.value } : model.value ? { agent: Number(model.value) } : {}),
    };
    ready.disabled = true;
    error.textContent = "";
    await send(changes).catch((refused) => (error.textContent = refused.message));
    ready.disabled = false;
  });
}

function labelled(label, field, more = null) {
  field.setAttribute("aria-label", label);
  return make("label", { class: "page-field" }, make("span", { class: "page-label" }, label, more), field);
}

/** A text of the run to be edited. A long one is not in the page: what is typed replaces it. */
function makeEdit(label, { text, length, redacted }) {
  const long = text === null;
  const rows = (text || "").split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / 90)), 0);
  const field = make("textarea", { rows: Math.min(8, Math.max(2, rows)), spellcheck: "false" });
  field.value = text || "";
  const given = field.value; // the browser's own line breaks
  if (long) field.placeholder = `${count(length)} characters: typed text replaces them`;
  const note = redacted ? `; ${HIDDEN}` : "";
  return { node: labelled(label, field, note), changed: () => field.value !== given, text: () => field.value };
}

// In code --------------------------------------------------------------------------------------------------------------------

/** What to type in a cell to get the open run, as the kernel knows it; not in a file. It is in the row of runs, which shows if there are two. */
function makeInCode(store, send) {
  const node = make("span", { class: "page-in-code", hidden: true });
  const ask = ({ view: { open } }) => send && open !== null && send({ do: "in_code", run: open }).then((code) => store.put(open, { code }), () => {});
  const asked = part(node, ({ view }) => [view.open], ask);
  const drawn = part(
    node,
    ({ run }) => [run?.id, run?.code],
    ({ run }) => {
      node.hidden = !run?.code;
      if (!run?.code) return;
      const text = run.code.includes(".") ? `${run.called_by ? "child" : "branch"} = ${run.code}` : run.code;
      const shown = make("code", {}, text);
      node.replaceChildren(make("span", { class: "page-label" }, "In code"), shown, copyButton(text, shown, "this run"));
    },
  );
  return { node, update: (state) => [asked, drawn].forEach((one) => one.update(state)) };
}

// Side by side ---------------------------------------------------------------------------------------------------------------

/** True while several runs are shown side by side. */
const areBeside = (view) => view.beside && !!view.all && view.compare === null;

/** The runs that were given to the panel, a column each; the button turns to the transcript of one run and back. */
function makeColumns(store, send) {
  const node = make("div", { class: "page-columns", role: "group", "aria-label": "Runs side by side", hidden: true });
  const button = make("button", { type: "button", class: "page-button", hidden: true }, "Side by side");
  button.addEventListener("click", () => store.set({ beside: !store.view.beside, compare: null }));
  const columns = new Map();
  let met = false;

  function update(state) {
    const { all } = state.view;
    button.hidden = !all;
    node.hidden = !areBeside(state.view);
    button.setAttribute("aria-pressed", String(!node.hidden));
    if (all && !met) {
      met = true;
      requestAnimationFrame(() => store.set({ beside: true }));
    }
    if (node.hidden) return;
    node.style.setProperty("--columns", all.runs.length > 4 ? Math.ceil(all.runs.length / 2) : all.runs.length);
    for (const id of all.runs) {
      if (!store.run(id)) continue;
      if (!columns.has(id)) columns.set(id, makeColumn(store, id));
      const column = columns.get(id);
      if (!column.node.isConnected) node.append(column.node);
      column.update({ ...state, run: store.run(id) });
    }
  }
  return { node, button, update };
}

const STEPS_IN_COLUMN = 5;

/** One run: its state, what it has used, its newest steps and the answer that streams in, and why it ended. */
function makeColumn(store, id) {
  const open = make("button", { type: "button", class: "page-link", onclick: () => store.set({ open: id, beside: false }) });
  const state = make("span", { class: "page-column-state" });
  const gauges = make("div", { class: "page-gauges" });
  const body = make("div", { class: "page-column-body", tabindex: 0, role: "region" });
  const end = make("p", { class: "page-column-end" });
  const node = make("article", { class: "page-column" }, make("header", {}, make("h3", {}, open), state), gauges, body, end);
  node.addEventListener("click", (event) => {
    if (!event.target.closest("a, button, summary") && getSelection().isCollapsed) open.click();
  });
  const head = part(
    node,
    ({ run }) => [run.state, run.end, run.totals, run.limits, run.name],
    ({ run }) => {
      const [shape, tone, word] = stateOf(run);
      node.setAttribute("aria-label", run.name);
      body.setAttribute("aria-label", `The newest steps of ${run.name}`);
      open.textContent = run.name;
      open.title = `${run.name}: open the transcript`;
      state.className = `page-column-state ${tone}`;
      state.replaceChildren(mark(shape, "", 9), word);
      gauges.replaceChildren(...GAUGES.map((one) => gaugeOf(run, one)).filter(Boolean));
      end.className = `page-column-end ${tone}`;
      end.hidden = !run.end;
      if (run.end) end.replaceChildren(make("b", {}, words(run.end.stop_reason)), ` ${run.end.detail}`);
    },
  );
  const shown = new Map(); // the newest steps, by their data
  let placed = 0; // where the text was scrolled to; from any other place a person has scrolled
  const answer = part(
    node,
    ({ run }) => [run.live, run.steps],
    ({ run }) => {
      const follow = Math.abs(body.scrollTop - placed) < 4 || body.scrollTop + body.clientHeight >= body.scrollHeight - 4;
      const steps = run.steps.slice(-STEPS_IN_COLUMN);
      const missing = steps.filter((step) => step.html === null).map((step) => step.n);
      if (missing.length) store.need(id, missing).catch(() => {});
      const said = (n, word, html) => make("div", {}, make("small", {}, `Step ${count(n)} ${word}`), fill(make("div", { class: "page-said" }), html));
      for (const step of shown.keys()) if (!steps.includes(step)) shown.delete(step);
      for (const step of steps) if (!shown.has(step)) shown.set(step, said(step.n, words(step.finish), step.html));
      const { live } = run;
      const rows = steps.map((step) => shown.get(step));
      if (live) rows.push(said(live.n, live.words, `<div class="agentlab-md">${live.blocks.join("")}${live.tail}</div>`));
      body.replaceChildren(...(rows.length ? rows : [make("small", {}, "not started yet")]));
      if (!follow) return;
      body.scrollTop = live || !rows.length ? body.scrollHeight : rows.at(-1).offsetTop - body.offsetTop; // the beginning of what was said
      placed = body.scrollTop;
    },
  );
  return {
    node,
    update(state) {
      node.setAttribute("aria-current", String(id === state.view.open));
      head.update(state);
      answer.update(state);
    },
  };
}
