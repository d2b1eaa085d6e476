// Branches: made from any step of the open run, and how code gets hold of a run. Several runs side by side.

// The form -------------------------------------------------------------------------------------------------------------------

/** The forms of each page, by run and step. They outlive the items that they are in: what was typed stays while the list drops these. */
const branchForms = new WeakMap();

/** The button below a step (0: below the prompt) that makes a branch there; null in a file. */
function branchHere(store, run, step, send) {
  if (!send) return null;
  const key = `${run.id}/${step}`;
  const forms = branchForms.get(store) || new Map();
  branchForms.set(store, forms);
  if (!forms.has(key)) forms.set(key, makeBranchForm(store, run.id, step, send, () => forms.delete(key)));
  return forms.get(key);
}

function makeBranchForm(store, runId, step, send, forget) {
  const name = step ? `Branch after step ${count(step)}` : "Branch from the prompt";
  const button = make("button", { type: "button", class: "page-button page-branch-here", "aria-expanded": "false" }, "Branch here");
  button.setAttribute("aria-label", `Branch here: ${step ? `after step ${step}` : "from the prompt"}`);
  const form = make("form", { class: "page-branch-form", "aria-label": name, novalidate: true, hidden: true });
  const node = make("div", { class: "page-branching" }, button, form);
  let offered = null;

  async function open() {
    offered ??= await send({ do: "branch_form", run: runId, step });
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
    forget(); // the next branch from here begins with an empty form
    show(false);
    frame?.querySelector(".page-controls button:not(:disabled)")?.focus();
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
  const edits = offered.results.map((result) => [result.id, makeEdit(`Result of ${result.tool}`, result)]);
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
  const ready = make("button", { type: "submit", class: "page-button primary" }, "Branch");
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
  return make("label", { class: "page-field" }, make("span", { class: "page-label" }, label, more), field);
}

/** A text of the run to be edited. A long one is not in the page: what is typed replaces it. */
function makeEdit(label, { text, length, redacted }) {
  const long = text === null;
  const rows = Math.max(2, Math.min(8, Math.ceil((text || "").length / 90), ((text || "").match(/\n/g) || []).length + 1));
  const field = make("textarea", { rows: Math.max(rows, 2), spellcheck: "false" });
  field.value = text || "";
  const given = field.value; // the browser's own line breaks
  if (long) field.placeholder = `${count(length)} characters: typed text replaces them`;
  const note = redacted ? "; keys are hidden, and an edited text is used as it is shown" : "";
  return { node: labelled(label, field, note), changed: () => field.value !== given, text: () => field.value };
}

// In code --------------------------------------------------------------------------------------------------------------------

/** What to type in a cell to get the open run, as the kernel knows it; empty in a file and for a single run. */
function makeInCode(store, send) {
  const node = make("span", { class: "page-in-code", hidden: true });
  return part(
    node,
    (state) => [state.view.open, store.runs().length > 1],
    async ({ view }) => {
      const { open } = view;
      const code = send && store.runs().length > 1 ? await send({ do: "in_code", run: open }).catch(() => "") : "";
      if (open !== store.view.open) return;
      node.hidden = !code;
      if (!code) return;
      const text = code.includes(".") ? `${store.run().called_by ? "child" : "branch"} = ${code}` : code;
      const shown = make("code", {}, text);
      node.replaceChildren(make("span", { class: "page-label" }, "In code"), shown, copyButton(text, shown, "this run"));
    },
  );
}

// Side by side ---------------------------------------------------------------------------------------------------------------

/** Several runs side by side, a column each. */
function makeColumns(store, send) {
  const node = make("div", { class: "page-columns", hidden: true });
  return { node, update: () => {} };
}
