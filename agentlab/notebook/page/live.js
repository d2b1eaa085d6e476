// The page in a notebook: its data comes from the kernel as messages, and its commands go there.

/** Return the function that sends a command to the kernel; its promise has the kernel's answer. */
function makeSend(model) {
  const waiting = new Map();
  let last = 0;
  model.on("msg:custom", (message) => {
    if (message.kind !== "answer" || !waiting.has(message.id)) return;
    const { resolve, reject } = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.error === undefined) resolve(message.value);
    else reject(new Error(message.error));
  });
  return (message) =>
    new Promise((resolve, reject) => {
      const id = ++last;
      waiting.set(id, { resolve, reject });
      model.send({ ...message, id });
    });
}

/** Put news from the kernel into the store. */
function take(store, { runs = {}, steps = {}, marks = {}, open, fault }) {
  for (const [id, fields] of Object.entries(runs)) store.put(id, fields);
  for (const [id, rows] of Object.entries(steps)) store.append(id, rows);
  for (const [id, more] of Object.entries(marks)) store.put(id, { marks: [...(store.run(id)?.marks || []), ...more] });
  if (open) store.set({ open });
  if (fault !== undefined) store.set({ fault });
}

function render({ model, el }) {
  const root = el.appendChild(make("div"));
  const kept = model.get("kept_class");
  if (kept) root.before(make("style", {}, `.${CSS.escape(kept)} {display:none}`));
  const store = makeStore();
  const send = makeSend(model);
  let opened = null; // the run that the kernel has opened
  const news = (message) => {
    if (message.kind !== "news") return;
    opened = message.open || opened;
    take(store, message);
  };
  model.on("msg:custom", news);
  const unmount = mountPage(root, store, send);
  const unsubscribe = store.subscribe(() => {
    const { open } = store.view;
    if (open === null || open === opened) return;
    opened = open;
    send({ do: "open", run: open });
  });
  send({ do: "hello" });
  return () => {
    model.off("msg:custom", news);
    unsubscribe();
    unmount();
  };
}
