// What a person does to the open run: the buttons, the chat box, and the word on calls that wait for approval.

/**
 * Return the function that sends a command about the open run, and shows the error if it is refused. Its promise is true or false.
 * A refusal stays in sight until the next command, or until it is closed.
 */
function makeCommand(store, send) {
  return (message) => {
    store.set({ fault: "" });
    return send({ run: store.view.open, ...message }).then(
      () => true,
      (error) => {
        store.set({ fault: error.message });
        return false;
      },
    );
  };
}

/** A button that keeps the focus while it is disabled, and takes a double click as one. `press` may return a promise: until it is kept,
 * the button does nothing. */
function makeButton({ label = "", shape = "", kind = "", press, often = false, ...more }) {
  const text = make("span", { hidden: kind === "icon" }, label);
  const icon = shape ? mark(shape, "", 10) : null;
  const node = make("button", { type: "button", class: `page-button ${kind}`, ...more }, icon, text);
  let busy = false;
  node.addEventListener("click", async (event) => {
    if (busy || node.getAttribute("aria-disabled") === "true" || (event.detail > 1 && !often)) return;
    busy = true;
    try {
      await press();
    } finally {
      busy = false;
    }
  });
  return {
    node,
    show({ label: words = label, why_not: why = "", tip = "" }) {
      if (text.textContent !== words) text.textContent = words;
      node.setAttribute("aria-disabled", String(!!why));
      node.title = why || tip;
    },
  };
}

const BUTTONS = [
  ["go", "play"],
  ["step", "step"],
  ["pause", "bars"],
  ["stop", "square"],
];

/** Run, step, pause and stop; `do_` sends the command. */
function makeFour(label, do_) {
  const four = BUTTONS.map(([name, shape]) => [
    name,
    makeButton({ shape, kind: name === "go" ? "main" : "", press: () => do_(name), often: name === "step" }),
  ]);
  const nodes = four.map(([, button]) => button.node);
  const node = make("div", { class: "page-controls", role: "group", "aria-label": label }, nodes);
  return { node, show: (data) => four.forEach(([name, button]) => button.show(data[name])) };
}

/** The buttons of the open run. */
function makeControls(store, send) {
  const command = makeCommand(store, send);
  const { node, show } = makeFour("The run", (what) => command({ do: what }));
  return part(
    node,
    (state) => [state.run?.buttons],
    ({ run }) => {
      node.hidden = !run?.buttons; // before the kernel has answered
      if (run?.buttons) show(run.buttons);
    },
  );
}

/** The buttons of all runs, and their round; hidden where there is one run. */
function makeAll(store, send) {
  const command = makeCommand(store, send);
  const { node: group, show } = makeFour("All runs", (what) => command({ do: "every", what }));
  const said = make("span", { class: "page-quiet", role: "status" });
  const node = make("div", { class: "page-all" }, group, said);
  return part(
    node,
    (state) => [state.view.all],
    ({ view: { all } }) => {
      node.hidden = !all;
      if (!all) return;
      show(Object.fromEntries(Object.entries(all.buttons).map(([name, one]) => [name, { ...one, why_not: all.why_not[name] }])));
      said.textContent = all.words.join(" \u00b7 ");
    },
  );
}

/** The button that saves the runs as one file, which needs no kernel. */
function makeSave(store, send) {
  async function press() {
    const { name, html } = await send({ do: "save", run: store.view.open });
    const url = URL.createObjectURL(new Blob([html], { type: "text/html" }));
    make("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }
  const failed = (error) => store.set({ fault: error.message });
  const title = "Save as file: one page with these runs, which needs no kernel";
  return makeButton({ shape: "save", kind: "icon", press: () => press().catch(failed), title, "aria-label": "Save as file" }).node;
}

// The chat box ---------------------------------------------------------------------------------------------------------------

/** The box for the next message of the conversation. What is typed is kept for each run, also if it is refused. */
function makeChat(store, send) {
  const command = makeCommand(store, send);
  const drafts = new Map();
  const input = make("textarea", { rows: 1, "aria-label": "Next message", class: "page-text" });
  const submit = makeButton({ label: "Send", press: () => say(false) });
  const raise = makeButton({ kind: "main", press: () => say(true) });
  const offer = make("div", { class: "page-offer", hidden: true }, make("span", {}, "A limit is reached."), raise.node);
  const node = make("form", { class: "page-chat", "aria-label": "Chat" }, input, submit.node, offer);
  let open = null;

  async function say(raising) {
    const { id, chat } = store.run();
    const text = input.value;
    if (!text.trim()) return input.focus();
    if (chat.raise && !raising) return raise.node.focus();
    if (!(await command({ do: "say", text, raise: raising }))) return;
    drafts.delete(id);
    if (store.view.open === id) input.value = "";
    input.focus();
  }
  function show({ run }) {
    if (run?.id !== open) {
      drafts.set(open, input.value);
      open = run?.id;
      input.value = drafts.get(open) || "";
    }
    if (!run?.chat) return;
    const typed = input.value.trim() !== "";
    input.placeholder = run.chat.why_not || "Next message";
    submit.show({ why_not: run.chat.why_not || (typed ? "" : "Write a message first."), tip: "Enter; Shift+Enter is a new line" });
    offer.hidden = !typed || !run.chat.raise;
    raise.show({ label: `${run.chat.raise} and send` });
  }
  input.addEventListener("input", () => show({ run: store.run() }));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    if (event.shiftKey) {
      input.setRangeText("\n", input.selectionStart, input.selectionEnd, "end"); // JupyterLab prevents that the browser does it
      show({ run: store.run() });
    } else if (!event.repeat) submit.node.click();
  });
  node.addEventListener("submit", (event) => event.preventDefault());
  return part(node, (state) => [state.run?.id, state.run?.chat], show);
}

// Approvals ------------------------------------------------------------------------------------------------------------------

const EDITABLE = "You can edit the arguments first.";
const HIDDEN = "keys are hidden, and an edited text is used as it is shown";
const CHECK_MS = 250; // after the last key

/** A card for each tool call that waits for a person's word. */
function makeApprovals(store, send) {
  const cards = new Map();
  const title = make("h2", {});
  const list = make("div", { class: "page-cards" });
  const every = makeButton({
    label: "Approve all",
    press: () => makeCommand(store, send)({ do: "decide", decision: "all" }),
  });
  const node = make(
    "section",
    { class: "page-approvals warn", tabindex: -1, "aria-label": "Calls that wait for approval", hidden: true },
    make("div", { class: "page-approvals-head" }, mark("bars", "warn"), title, make("small", {}, EDITABLE), every.node),
    list,
  );
  const keyOf = (one) => `${one.of}/${one.call}`;
  let timer = 0;

  /** Count down what is left of the timeout, which needs no message. */
  function showTime() {
    const run = store.run();
    for (const one of run?.asked || []) {
      const left = cards.get(keyOf(one))?.querySelector(".page-left");
      if (!left) continue;
      const seconds = Math.max(0, Math.ceil(one.ends_at_s - elapsedOf(run)));
      left.textContent = known(one.ends_at_s) ? `${amount(seconds, "s")} left of the timeout${run.ticks ? "" : ", paused"}` : "";
    }
  }
  return part(
    node,
    (state) => [state.run?.asked],
    ({ run }) => {
      const asked = run?.asked || [];
      const had = node.contains(focused());
      const waiting = new Set(asked.map(keyOf));
      let fresh = false;
      for (const [key, card] of cards) {
        if (waiting.has(key)) continue;
        card.remove();
        cards.delete(key);
      }
      for (const one of asked) {
        if (cards.has(keyOf(one))) continue;
        const card = makeCard(one, store, send);
        cards.set(keyOf(one), card);
        list.append(card);
        fresh = true;
      }
      clearInterval(timer);
      if (asked.length) timer = setInterval(() => (node.isConnected ? showTime() : clearInterval(timer)), 250);
      showTime();
      node.hidden = !asked.length;
      title.textContent = asked.length === 1 ? "A tool call waits for your approval" : `${asked.length} tool calls wait for your approval`;
      every.node.hidden = asked.length < 2;
      if (asked.length && (had || fresh) && !isTyping(had ? null : focused())) {
        if (!node.contains(focused())) node.focus({ preventScroll: true });
      }
    },
  );
}

/** True if this element takes text, as that of another cell does. */
const isTyping = (node) => !!node?.closest("input:not([type=range]), textarea, select, [contenteditable=true], .cm-editor");

/** One call: what it is, why a person is asked, and what can be decided. */
function makeCard(call, store, send) {
  const refusal = make("p", { class: "page-refused", role: "alert", id: `page-refusal-${++lastId}`, hidden: true });
  const ask = (message) => send({ run: store.view.open, call: call.call, of: call.of, ...message });
  const decide = (decision, text) => ask({ do: "decide", decision, text }).catch((error) => refuse(error.message));
  const input = make("textarea", { class: "page-text code", "aria-label": `Arguments of ${call.tool}`, spellcheck: "false" });
  const about = make("small", { id: `page-about-${lastId}` }, `step ${call.step} \u00b7 ${call.why}${call.redacted ? `; ${HIDDEN}` : ""}`);
  dress(input, { "aria-describedby": `${about.id} ${refusal.id}` });
  input.value = call.arguments;
  input.rows = Math.min(5, call.arguments.split("\n").length);
  const edited = () => input.value !== call.arguments;
  const approve = makeButton({
    label: "Approve",
    kind: "main",
    press: () => decide("approve", edited() ? input.value : undefined),
  });
  let misfit = ""; // why the arguments do not fit
  let waiting = 0;

  function refuse(why) {
    refusal.hidden = !why;
    write(refusal, why);
  }
  function label() {
    const words = edited() ? "Approve with these arguments" : "Approve";
    approve.show({ label: words, why_not: edited() ? misfit : "" });
  }
  /** Mark arguments that do not fit before a person approves them: those of the model, too. */
  async function check() {
    const text = input.value;
    const why = await ask({ do: "check", text: edited() ? text : undefined }).catch(() => "");
    if (text !== input.value) return;
    misfit = why;
    dress(input, { "aria-invalid": String(!!why) });
    refuse(why && !edited() ? `${why} If you approve, the model reads this as an error.` : why);
    label();
  }
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(check, CHECK_MS);
    label();
  });
  check();
  const word = make("textarea", { class: "page-text", rows: 2 });
  const send_ = makeButton({ kind: "main", press: () => decide(word.dataset.decision, word.value) });
  const back = makeButton({ label: "Back", press: () => turn(null) });
  const first = make("div", { class: "page-choices" }, approve.node);
  const second = make("div", { class: "page-word", hidden: true }, word, make("div", { class: "page-choices" }, send_.node, back.node));
  let from = null; // the button that led to the second row

  function turn(choice) {
    first.hidden = !!choice;
    second.hidden = !choice;
    refuse(choice ? "" : misfit);
    if (!choice) return from.focus();
    word.dataset.decision = choice.decision;
    word.setAttribute("aria-label", choice.about);
    word.placeholder = choice.about;
    send_.show({ label: choice.label });
    word.focus();
  }
  const choices = [
    { decision: "answer", title: "Answer in its place\u2026", label: "Send the answer", about: "What the model reads as the result" },
    { decision: "refuse", title: "Refuse\u2026", label: "Refuse", about: "A word to the model, which you may leave out" },
  ];
  for (const choice of choices) {
    const press = () => {
      from = button.node;
      turn(choice);
    };
    const button = makeButton({ label: choice.title, press });
    first.append(button.node);
  }
  second.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    turn(null);
  });
  return make(
    "div",
    { class: "page-card", role: "group", "aria-label": `Call of ${call.tool}` },
    make("p", {}, make("b", { class: "agentlab-call-name" }, call.tool), about, make("small", { class: "page-left" })),
    input,
    refusal,
    first,
    second,
  );
}

// What was refused -----------------------------------------------------------------------------------------------------------

/** What was refused, or what failed, in the kernel's words; it stays until it is closed or the next command is sent. */
function makeFault(store) {
  const text = make("span");
  const close = make(
    "button",
    { type: "button", class: "page-button icon", "aria-label": "Close", onclick: () => store.set({ fault: "" }) },
    "\u00d7",
  );
  const node = make("div", { class: "page-fault", role: "alert", hidden: true }, text, close);
  return part(
    node,
    (state) => [state.view.fault],
    ({ view }) => {
      node.hidden = !view.fault;
      text.textContent = view.fault;
    },
  );
}
