// A slider over a list of values: the browser's own, so that keys, touch and screen readers work. Without this file the number box
// beside it takes the same values.

const SHORTEST_PAUSE_MS = 80; // shortest time between two messages while it is moved
const KEYS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"]);

function render({ model, el }) {
  el.classList.add("agentlab-range");
  const input = document.createElement("input");
  input.type = "range";
  input.min = "0";
  input.step = "1";
  let last = 0;
  let timer = null;

  const words = () => {
    const text = model.get("texts")[Number(input.value)] ?? "";
    input.setAttribute("aria-valuetext", text);
    input.title = text;
  };
  const show = () => {
    input.max = String(model.get("texts").length - 1);
    input.value = String(model.get("place"));
    input.setAttribute("aria-label", model.get("label"));
    words();
  };
  const send = () => {
    timer = null;
    last = Date.now();
    model.set("place", Number(input.value));
    model.save_changes();
  };
  const onInput = () => {
    words();
    if (timer === null) timer = setTimeout(send, Math.max(0, last + SHORTEST_PAUSE_MS - Date.now()));
  };
  const onKey = (event) => {
    if (event.target === input && KEYS.has(event.key)) event.stopPropagation(); // these keys are the slider's, not the notebook's
  };
  const onPlace = () => {
    if (timer === null) show(); // otherwise the person is still moving it
  };

  show();
  input.addEventListener("input", onInput);
  window.addEventListener("keydown", onKey, true); // before the notebook, which listens to the document
  model.on("change:place", onPlace);
  model.on("change:texts", show);
  el.appendChild(input);
  return () => {
    clearTimeout(timer);
    window.removeEventListener("keydown", onKey, true);
    model.off("change:place", onPlace);
    model.off("change:texts", show);
  };
}

export default { render };
