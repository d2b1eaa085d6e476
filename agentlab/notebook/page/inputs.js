// Controls of the settings: one for a field of any kind, a tick, a line that unfolds.

/** Put nodes into an element in this order without moving those that are in place: what has the focus keeps it. */
function arrange(parent, ...nodes) {
  const wanted = nodes.flat(Infinity).filter(Boolean);
  for (const child of [...parent.childNodes]) if (!wanted.includes(child)) child.remove();
  wanted.forEach((node, place) => {
    if (parent.childNodes[place] !== node) parent.insertBefore(node, parent.childNodes[place] || null);
  });
  return parent;
}

/** Set a text, only if it is another one: what is read aloud when it changes is not read again. */
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
let lastId = 0;

/**
 * The control of one field: it shows the value in force, unless a person types; Enter or leaving it sends, Escape restores.
 *
 * `set(value)` sends a value and returns a promise of the value as it is shown, rejected with the reason of a refusal, which is shown in
 * `refusal`. `extra` has what is shown where there is room: names to choose from, a tick for no value.
 */
function makeControl(field, set) {
  const refusal = make("p", { class: "page-refused", role: "alert", id: `page-refusal-${++lastId}` });
  const accept = () => {
    refusal.textContent = "";
    dress(input, { "aria-invalid": "false" });
  };
  const refuse = (error) => {
    refusal.textContent = error.message;
    dress(input, { "aria-invalid": "true", "aria-describedby": refusal.id });
  };
  const send = (value) => set(value).then(accept, refuse);
  const typed = ["number", "text", "names"].includes(field.control);
  let extra = [];
  let input;
  let follow;
  let restore = () => {};

  if (typed) {
    let heard = null; // the value in the kernel's last news, which come after its answer
    let shown = null; // the value in force
    let tried = null; // what was sent, unless it is in force by now
    let dirty = false;
    const long = field.control === "text" && field.long;
    input = make(long ? "textarea" : "input", {
      class: `page-input ${field.control}`,
      rows: long && 4,
      type: !long && "text",
      inputmode: field.control === "number" && "decimal",
      autocomplete: "off",
      spellcheck: "false",
    });
    const type = (typing) => {
      dirty = typing;
      input.dispatchEvent(new CustomEvent("page-typed", { bubbles: true, detail: typing }));
    };
    restore = () => {
      type(false);
      tried = null;
      input.value = shown;
      accept();
    };
    const commit = () => {
      if (!dirty) {
        if (tried === null) input.value = shown;
        return;
      }
      type(false);
      const mine = (tried = input.value);
      set(mine === "" && field.none ? null : mine).then(
        (answer) => {
          accept();
          shown = answer?.value ?? "";
          if (!dirty && input.value === mine) input.value = shown;
          if (tried === mine) tried = null;
        },
        (error) => tried === mine && refuse(error),
      );
    };
    input.addEventListener("input", () => type(true));
    input.addEventListener("blur", commit);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !long) commit();
      else if (event.key === "Escape") restore();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    follow = ({ value }) => {
      const text = value ?? "";
      const isOld = text === heard || text === shown;
      heard = text;
      if (isOld) return;
      shown = text;
      if (dirty || (input.matches(":focus") && input.value !== tried)) return;
      tried = null;
      input.value = shown;
      accept();
    };
  } else if (field.control === "choice") {
    let shown = ["not shown yet"];
    input = make("select", {
      class: "page-input",
      onchange: () => set(input.value || null).then(accept, (error) => ((input.value = shown ?? ""), refuse(error))),
    });
    follow = ({ value, choices, none }) => {
      const options = [...(none ? [["", none]] : []), ...choices.map((choice) => [choice, words(choice)])];
      if (input.options.length !== options.length)
        input.replaceChildren(...options.map(([name, text]) => make("option", { value: name }, text)));
      if (value === shown) return;
      shown = value;
      input.value = value ?? "";
    };
  } else if (field.control === "check") {
    let shown = null;
    input = make("input", {
      type: "checkbox",
      onchange: () => set(input.checked).then(accept, (error) => ((input.checked = shown), refuse(error))),
    });
    follow = ({ value }) => {
      if (value !== shown) input.checked = shown = value;
    };
  } else {
    input = make("code", { class: "page-quiet" });
    follow = ({ value }) => (input.textContent = value ?? "");
  }

  const none = field.none && field.control === "number" && makeTick(field.none, (on) => send(on ? null : field.start));
  const chips = make("div", { class: "page-choices", role: "group" });
  const showNames = ({ known = [], chosen = [] }, name, editable) => {
    if (chips.children.length !== known.length)
      chips.replaceChildren(
        ...known.map((one) =>
          make("button", { type: "button", class: "page-button", onclick: () => send({ toggle: one }) }, make("bdi", {}, one)),
        ),
      );
    [...chips.children].forEach((chip, place) => {
      chip.disabled = !editable;
      chip.setAttribute("aria-pressed", String(chosen.includes(known[place])));
    });
    chips.setAttribute("aria-label", `Choose for ${name}`);
  };
  if (field.control === "names") extra = [chips];
  if (none) extra = [none.node];
  const prefix = field.unit === "usd" ? make("span", { class: "page-quiet", "aria-hidden": "true" }, "$") : null;
  const suffix = field.unit === "s" ? make("span", { class: "page-quiet", "aria-hidden": "true" }, "s") : null;
  const node = make("span", { class: "page-control" }, prefix, input, suffix);
  return {
    node,
    input,
    refusal,
    extra,
    update(now, name, editable) {
      follow(now);
      const unit = { usd: " in US dollars", s: " in seconds" }[now.unit] || "";
      dress(input, { "aria-label": `${name}${unit}`, "data-name": name, title: now.help, placeholder: now.none || null });
      if (!editable && !input.disabled) restore(); // what was typed as the run ended
      input.disabled = !editable;
      if (now.control === "names") showNames(now, name, editable);
      if (none) none.update(now.value === null, `${now.none} on ${name}`, editable);
    },
  };
}

/** A check box with a short word beside it; `change(on)` sends it. A refused change is undone. */
function makeTick(word, change) {
  let shown = null;
  const box = make("input", { type: "checkbox" });
  box.addEventListener("change", () => Promise.resolve(change(box.checked)).catch(() => (box.checked = shown)));
  const text = make("bdi", {}, word);
  return {
    node: make("label", { class: "page-tickbox" }, box, text),
    box,
    update(on, name, editable) {
      if (on !== shown) box.checked = shown = on;
      box.disabled = !editable;
      if (name) box.setAttribute("aria-label", name);
    },
  };
}

/** A line that unfolds: the button, what is always there, and what is below it. */
function makeRow(redraw) {
  const id = `page-row-${++lastId}`;
  let open = false;
  const fold = make("button", { type: "button", class: "page-fold", "aria-controls": id });
  const title = make("bdi", { class: "page-limit-title" });
  const code = make("small");
  const lead = make("span");
  const used = make("span", { class: "page-limit-used" });
  const slot = make("span");
  const head = make(
    "div",
    { class: "page-limit-head" },
    fold,
    lead,
    make("span", { class: "page-limit-name" }, title, code),
    used,
    slot,
  );
  const meter = make("div");
  const about = make("p", { class: "page-limit-about", role: "status" });
  const hint = make("p", { class: "page-limit-hint", "aria-live": "polite" });
  const refusals = make("div");
  const more = make("div", { class: "page-limit-more", id });
  const node = make("li", { class: "page-limit" }, head, meter, about, hint, refusals, more);
  fold.addEventListener("click", () => {
    open = !open;
    redraw();
  });
  const row = {
    node,
    fold,
    title,
    code,
    lead,
    used,
    slot,
    meter,
    about,
    hint,
    refusals,
    more,
    isOpen: () => open,
    unfold: () => (open = true),
    update(name) {
      write(title, name);
      dress(fold, { "aria-expanded": String(open), "aria-label": `More on ${name}` });
      more.hidden = !open;
    },
  };
  return row;
}
