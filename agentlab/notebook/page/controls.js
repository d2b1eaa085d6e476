// What a person does to the open run: the buttons, the chat box, and the word on calls that wait for approval.

/** The buttons of the open run. */
function makeControls(store, send) {
  const node = make("div", { class: "page-controls", role: "group", "aria-label": "The run" });
  const press = (what) => () => send({ do: what, run: store.view.open }).catch((error) => store.set({ fault: error.message }));
  return part(
    node,
    (state) => [state.run?.buttons],
    ({ run }) => {
      const button = ([name, { label, why_not: why, tip }]) =>
        make("button", { type: "button", class: "page-button", disabled: !!why, title: why || tip, onclick: press(name) }, label);
      node.replaceChildren(...Object.entries(run?.buttons || {}).map(button));
    },
  );
}

/** The box for the next message of the conversation. */
function makeChat(store, send) {
  const node = make("form", { class: "page-chat" });
  return { node, update: () => {} };
}

/** A card for each tool call that waits for a person's word. */
function makeApprovals(store, send) {
  const node = make("div", { class: "page-approvals" });
  return { node, update: () => {} };
}

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
