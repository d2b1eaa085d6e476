// A button that copies a text to the clipboard and confirms it. The text beside it can be copied by hand.

function render({ model, el }) {
  el.classList.add("agentlab-copy");
  const button = document.createElement("button");
  button.className = "jupyter-button widget-button";
  button.textContent = model.get("label");
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  said.className = "agentlab-note";

  const onClick = async () => {
    try {
      await navigator.clipboard.writeText(model.get("text"));
      said.textContent = "Copied.";
    } catch {
      const code = el.closest(".agentlab-panel")?.querySelector(".agentlab-to-copy");
      if (code) document.getSelection().selectAllChildren(code);
      said.textContent = "This page may not copy: the code is marked, press Ctrl+C or ⌘C.";
    }
  };
  const onText = () => {
    said.textContent = "";
  };

  button.addEventListener("click", onClick);
  model.on("change:text", onText);
  el.append(button, said);
  return () => model.off("change:text", onText);
}

export default { render };
