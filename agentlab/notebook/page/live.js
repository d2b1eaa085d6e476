// The page in a notebook: its data comes from the kernel as messages, and its commands go there.

/**
 * Return the function that sends a command to the kernel; its promise has the kernel's answer. `listen` takes the kernel's messages,
 * `leave` rejects what is not answered yet and, until a message comes, all commands but the question whether the kernel is there.
 */
function makeSend(model) {
  const waiting = new Map();
  let last = Math.floor(Math.random() * 2 ** 40); // several pages of one panel get all answers
  let left = null; // why nothing can be sent
  function listen(message) {
    left = null;
    if (message.kind !== "answer" || !waiting.has(message.id)) return;
    const { resolve, reject } = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.error === undefined) resolve(message.value);
    else reject(new Error(message.error));
  }
  const send = (message) =>
    new Promise((resolve, reject) => {
      if (left !== null && message.do !== "hello") throw new Error(left);
      const id = ++last;
      waiting.set(id, { resolve, reject });
      model.send({ ...message, id });
    });
  function leave(why) {
    left = why;
    waiting.forEach(({ reject }) => reject(new Error(why)));
    waiting.clear();
  }
  return { send, listen, leave };
}

/** Put news from the kernel into the store: `page` is set if it is everything. */
function take(store, { runs = {}, steps = {}, marks = {}, page, open, fault, all }) {
  const isNew = (id) => Number(!store.run(id)); // a branch takes steps of its parent, which come first
  for (const id of [...new Set([runs, steps, marks].flatMap(Object.keys))].sort((a, b) => isNew(a) - isNew(b))) {
    const { readings, live, totals, ...fields } = runs[id] || {};
    const run = store.run(id);
    if (!run && !fields.id) continue; // everything about it is on its way
    if (totals) fields.totals = { ...run?.totals, ...totals };
    if (readings)
      fields.limits = run.limits.map((row, place) => {
        const [value, share, met] = readings[place];
        return { ...row, value, share, met };
      });
    if (live !== undefined) fields.live = live && grown(run?.live, live);
    if (marks[id]) fields.marks = [...(page || !run ? [] : run.marks), ...marks[id]];
    if (Object.keys(fields).length) store.put(id, fields);
    if (steps[id]) store.append(id, steps[id]);
  }
  if (open) store.set({ open });
  if (all !== undefined) store.set({ all });
  if (fault !== undefined) store.set({ fault });
}

const EMPTY_LIVE = { words: "", note: "", tail: "", blocks: [], calls: [], children: [] };

/** The step under way after a message: blocks are added from `first` on, of calls only what has changed is sent. */
function grown(before, { fresh, first, blocks, calls, ...fields }) {
  const old = (!fresh && before) || EMPTY_LIVE;
  const merged = old.calls.slice();
  for (const [place, call] of Object.entries(calls || {})) merged[place] = { ...merged[place], ...call };
  return { ...old, ...fields, calls: merged, blocks: blocks ? [...old.blocks.slice(0, first || 0), ...blocks] : old.blocks };
}

const GONE =
  "The kernel was restarted or has ended: nothing can be changed here any more. To continue, run the cell again.";
const ANSWER_MS = 5_000; // for a kernel whose connection was lost, to answer

/** Call `gone` if the kernel does not answer once its connection has changed: one that restarts forgets the page. */
function watchKernel(model, hello, gone) {
  let doubt = 0;
  const lost = () => {
    clearTimeout(doubt);
    doubt = setTimeout(gone, ANSWER_MS);
    hello().then(
      () => clearTimeout(doubt),
      () => {},
    );
  };
  model.on("comm_live_update", lost);
  return () => {
    clearTimeout(doubt);
    model.off("comm_live_update", lost);
  };
}

function render({ model, el }) {
  const root = el.appendChild(make("div"));
  const kept = model.get("kept_class");
  if (kept) root.before(make("style", {}, `.${CSS.escape(kept)} {display:none}`));
  const { send, listen, leave } = makeSend(model);
  const page = Math.random().toString(36).slice(2); // this view of the panel
  const store = makeStore(
    {},
    {
      steps: (run, steps) => send({ do: "steps", run, steps }),
      search: (run, query, from) => send({ do: "search", run, query, from }),
    },
  );
  let opened = null; // the run that the kernel has opened
  const hello = () => send({ do: "hello", page });
  const received = (message) => {
    listen(message);
    if (message.kind !== "news" || (message.page && message.page !== page && message.page !== "every")) return;
    opened = message.open || opened;
    take(store, message);
  };
  model.on("msg:custom", received);
  const unwatch = watchKernel(model, hello, () => {
    leave(GONE);
    store.set({ fault: GONE });
  });
  const unmount = mountPage(root, store, send);
  const unsubscribe = store.subscribe(() => {
    const { open } = store.view;
    if (open === null || open === opened) return;
    opened = open;
    send({ do: "open", run: open }).catch(() => {});
  });
  hello().catch((error) => store.set({ fault: error.message }));
  return () => {
    send({ do: "bye", page }).catch(() => {});
    unwatch();
    model.off("msg:custom", received);
    unsubscribe();
    unmount();
    leave("This view of the panel was closed.");
  };
}
