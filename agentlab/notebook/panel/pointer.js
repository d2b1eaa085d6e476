// Sends clicks in the panel's tables and charts to Python. Draws nothing; every action also has a native control in the panel.
//
// One listener on the document per view, since the views around it are replaced. A click belongs to its panel: the nearest
// `.agentlab-panel` around it must be the one around this view, so two panels in a page never mix.

function render({ model, el }) {
  el.classList.add("agentlab-pointer"); // the style sheet marks clickable parts if this element exists

  const isMine = (target) => {
    const panel = target.closest(".agentlab-panel");
    return panel !== null && panel === el.closest(".agentlab-panel");
  };

  const onClick = (event) => {
    const target = event.target;
    if (!(target instanceof Element) || !isMine(target)) return;
    const summary = target.closest("summary");
    if (summary !== null) {
      const section = summary.parentElement;
      if (section.dataset.section) model.send({ section: section.dataset.section, open: !section.open });
      return;
    }
    if (target.closest("a, button, input, select, textarea, label")) return;
    const row = target.closest("[data-step], [data-run]");
    if (row !== null) {
      if (isSelecting(row)) return; // to copy from it
      if (row.dataset.run) model.send({ run: row.dataset.run });
      else model.send({ step: Number(row.dataset.step) });
      return;
    }
    const chart = target.closest("img[data-axes]");
    if (chart === null) return;
    const step = stepAt(chart, event);
    if (step !== null) model.send({ step });
  };

  document.addEventListener("click", onClick);
  return () => document.removeEventListener("click", onClick);
}

/** Whether text of this element is marked. */
function isSelecting(element) {
  const selection = document.getSelection();
  return selection !== null && selection.type === "Range" && element.contains(selection.anchorNode);
}

/** The step under the pointer; null beside the axes. `data-axes` says where each lies, as shares of the picture. */
function stepAt(chart, event) {
  const box = chart.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width;
  const y = (event.clientY - box.top) / box.height;
  for (const axes of JSON.parse(chart.dataset.axes)) {
    const margin = 0.02; // a point at the very edge has a half outside
    if (x < axes.left - margin || x > axes.right + margin || y < axes.top || y > axes.bottom) continue;
    const step = Math.round(axes.from + ((x - axes.left) / (axes.right - axes.left)) * (axes.to - axes.from));
    return Math.min(Math.max(step, axes.first), axes.last);
  }
  return null;
}

export default { render };
