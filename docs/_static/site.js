// Accessibility that Sphinx does not provide, for screen readers and keyboards.
document.addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll("p.caption[role=heading]:not([aria-level])")) caption.setAttribute("aria-level", "2");
  const sizes = new ResizeObserver(changed => {
    for (const { target: code } of changed) {
      if (code.scrollWidth > code.clientWidth) code.tabIndex = 0; // scrolls with the arrow keys
      else code.removeAttribute("tabindex");
    }
  });
  for (const code of document.querySelectorAll("pre, div.cell_output, div.table-wrapper")) sizes.observe(code);
  for (const list of document.querySelectorAll("dl:not(:has(> dt))")) { // the lines of a signature
    for (const line of [list, ...list.children]) line.setAttribute("role", "presentation");
  }
});
