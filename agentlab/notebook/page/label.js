// The widget in which a person labels answers. The kernel has the order, the place and the labels; the page shows one place.

function renderLabel({ model, el }) {
  const root = el.appendChild(make("div", { class: "agentlab-page agentlab-label", role: "group", "aria-label": "Label answers" }));
  const kept = model.get("kept_class");
  if (kept) root.before(make("style", {}, `.${CSS.escape(kept)} {display:none}`));
  const { send, listen, leave } = makeSend(model);
  let view = null; // what the kernel sent last
  let waiting = 0; // commands without an answer
  let last = Promise.resolve();
  let hidden = false; // the target

  const button = (text, keys, onclick) => {
    const shown = keys.map((key) => make("kbd", {}, key));
    return make("button", { type: "button", class: "page-button", "aria-keyshortcuts": keys.join(" "), onclick }, make("span", {}, text), shown);
  };
  const block = (name, label) => {
    const body = make("div", { class: "label-text", tabindex: 0, role: "region", "aria-label": label });
    const title = make("h3", { class: "page-label" }, label);
    return { node: make("section", { class: `label-${name}` }, title, body), title, body };
  };

  const question = make("h2", {});
  const filled = make("span", { class: "page-fill" });
  const progress = make("div", { class: "page-meter", role: "progressbar", "aria-label": "Labelled answers", "aria-valuemin": 0 }, filled);
  const counter = make("span", { class: "page-quiet" });
  const prompt = block("prompt", "Prompt");
  const target = block("target", "Target");
  const toggle = button("Hide", ["h"], () => hide(!hidden));
  target.node.prepend(make("div", { class: "label-line" }, target.title, toggle));
  const answers = make("div", { class: "label-answers" });
  const grades = make("div", { class: "label-grades", role: "group", "aria-label": "Grades" });
  const go = (by) => ask(({ place }) => ({ do: "go", place: place + by }));
  const back = button("Back", ["←"], () => go(-1));
  const next = button("Next", ["→"], () => go(1));
  const skip = button("Skip", ["s"], () => ask(({ place }) => ({ do: "skip", place })));
  const undo = button("Undo", ["u"], () => ask(() => ({ do: "undo" }), "The last label is taken back."));
  back.setAttribute("aria-keyshortcuts", "ArrowLeft");
  next.setAttribute("aria-keyshortcuts", "ArrowRight");
  const said = make("p", { class: "page-quiet label-said", role: "status" });
  const moves = make("div", { class: "label-moves", role: "group", "aria-label": "Other answers" }, back, next, skip, undo);
  root.append(
    make("div", { class: "label-head" }, question, make("div", { class: "label-progress" }, counter, progress)),
    prompt.node,
    target.node,
    answers,
    make("div", { class: "label-foot" }, grades, moves, said),
  );

  function hide(now) {
    hidden = now;
    target.body.hidden = hidden;
    toggle.firstChild.textContent = hidden ? "Show" : "Hide";
    toggle.setAttribute("aria-label", hidden ? "Show the target" : "Hide the target");
  }

  function show(fresh) {
    const isOver = fresh.place === fresh.count;
    const moved = !view || view.place !== fresh.place;
    const focus = [...grades.children].indexOf(focused());
    view = fresh;
    question.textContent = view.question;
    dress(progress, { "aria-valuemax": view.count, "aria-valuenow": view.labelled });
    filled.style.width = `${(100 * view.labelled) / view.count}%`;
    counter.textContent = `${isOver ? "" : `${view.place + 1} of ${view.count} · `}${view.labelled} labelled`;
    fill(prompt.body, view.prompt_html);
    fill(target.body, view.target_html);
    prompt.node.hidden = isOver;
    target.node.hidden = !view.target_html;
    if (moved)
      answers.replaceChildren(
        ...(view.answers || []).map(({ name, html }) => {
          const one = block("answer", name);
          fill(one.body, html);
          return one.node;
        }),
      );
    if (isOver) answers.replaceChildren(make("p", { class: "label-over" }, `All ${view.count} are labelled and saved in ${view.file}. Thank you, ${view.rater}.`));
    if (grades.children.length !== view.grades.length)
      grades.replaceChildren(...view.grades.map(({ name, keys }) => button(name, keys, () => grade(name))));
    [...grades.children].forEach((one, place) => {
      dress(one, { "aria-pressed": String(view.grades[place].name === view.grade), "aria-disabled": String(isOver) });
    });
    dress(back, { "aria-disabled": String(view.place === 0) });
    dress(next, { "aria-disabled": String(isOver) });
    dress(skip, { "aria-disabled": String(isOver) });
    dress(undo, { "aria-disabled": String(!view.undo) });
    root.style.minHeight = `${root.offsetHeight}px`;
    if (moved && focus >= 0) root.focus(); // the grade of one answer is not the start of the next one
  }

  /** Send what `message` makes of the view once the kernel has answered what was sent before. */
  function ask(message, words = "") {
    waiting++;
    last = last
      .then(() => send(message(view)))
      .then((answer) => {
        show(answer);
        said.textContent = words;
      })
      .catch((error) => (said.textContent = error.message))
      .finally(() => waiting--);
  }

  /** A key that is pressed before the next answer is shown is not its grade. */
  function grade(name) {
    if (!waiting && view.place < view.count) ask(({ place }) => ({ do: "grade", grade: name, place }), `Saved: ${name}.`);
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !view) return;
    const chosen = view.grades.find(({ keys }) => keys.includes(event.key.toLowerCase()));
    const action = chosen
      ? () => grade(chosen.name)
      : {
          ArrowLeft: () => back.click(),
          ArrowRight: () => next.click(),
          s: () => skip.click(),
          u: () => undo.click(),
          h: () => view.target_html && hide(!hidden),
        }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  const ignoreDisabled = (event) => {
    if (event.target.closest('[aria-disabled="true"]')) event.stopPropagation();
  };
  root.setAttribute("tabindex", "0");
  root.addEventListener("keydown", onKey);
  root.addEventListener("click", ignoreDisabled, true);
  const unshield = shieldKeys(root);
  model.on("msg:custom", listen);
  const gone = () => {
    leave(GONE);
    said.textContent = GONE;
  };
  const unwatch = watchKernel(model, () => send({ do: "hello" }), gone);
  hide(false);
  send({ do: "hello" }).then(show, (error) => (said.textContent = error.message));
  return () => {
    unshield();
    unwatch();
    model.off("msg:custom", listen);
    leave("This view was closed.");
    root.remove();
  };
}
