"""How the panel looks: one style sheet, so that parts look alike. Colours hold on white and on near black, and tell nothing alone."""

STYLE = """<style>
.agentlab-panel .agentlab-status {display:flex; flex-wrap:wrap; gap:4px 14px; align-items:baseline; line-height:1.5}
.agentlab-badge {font-weight:700; padding:1px 9px; border-radius:10px; border:1px solid currentColor}
.agentlab-meter {display:grid; grid-template-columns:minmax(7em,auto) minmax(5em,1fr) auto auto; gap:2px 10px}
.agentlab-meter {align-items:center; line-height:1.6; font-variant-numeric:tabular-nums}
.agentlab-meter > * {min-width:0; overflow-wrap:anywhere}
.agentlab-status bdi {overflow-wrap:anywhere}
.agentlab-bar.off {border-style:dashed; opacity:.6}
.agentlab-bar {height:10px; border-radius:5px; border:1px solid currentColor; overflow:hidden; opacity:.9}
.agentlab-fill {height:100%; background:#0072b2; forced-color-adjust:none}
.agentlab-fill.near {background:repeating-linear-gradient(45deg,#e69f00 0 6px,#b87f00 6px 9px)}
.agentlab-fill.met {background:repeating-linear-gradient(90deg,#d55e00 0 4px,#8a3d00 4px 6px)}
.agentlab-panel table.agentlab-steps {border-collapse:collapse; font-variant-numeric:tabular-nums; line-height:1.5}
.agentlab-panel .agentlab-steps :is(th, td) {padding:1px 10px 1px 0; text-align:left; border-bottom:1px solid #7f7f7f59}
.agentlab-panel .agentlab-steps th {white-space:nowrap}
.agentlab-panel .agentlab-bar-cell:not(:empty) {min-width:12em}
.agentlab-panel .agentlab-steps tbody th {font-weight:400; overflow-wrap:anywhere; white-space:normal}
.agentlab-panel .agentlab-steps :is(th, td).number {text-align:right}
.agentlab-end {padding:6px 10px; border-left:5px solid #0072b2; margin:4px 0; line-height:1.45}
.agentlab-end.truncated {border-left-color:#d55e00}
.agentlab-end.error {border-left-style:double; border-left-width:8px}
.agentlab-end {overflow-wrap:anywhere; max-width:80em}
.agentlab-fault {padding:4px 10px; border-left:5px solid #d55e00; white-space:pre-wrap; margin:2px 0; line-height:1.4}
.agentlab-note {opacity:.85; line-height:1.4}
.agentlab-panel .agentlab-answer pre {margin:0; padding:0; background:none; border:0; color:inherit; font:inherit; line-height:1.45}
.agentlab-panel .agentlab-answer pre {white-space:pre-wrap; overflow-wrap:anywhere; max-width:80em}
.agentlab-panel > .agentlab-answer pre {max-height:24em; overflow:auto; margin:2px 0 8px; padding:2px 10px; border:1px solid #7f7f7f59}
</style>"""
"""For the live panel and for what stays as it is; that is kept in notebooks, so that each change here is one of theirs."""

LIVE_STYLE = """<style>
/* "important", since ipywidgets takes the outline away with that word. */
.agentlab-panel :is(button, input):focus-visible {outline:3px solid #0072b2 !important; outline-offset:1px}
/* going through the run: step_browser.py, step_detail.py, pointer.js */
.agentlab-panel .agentlab-step-table {margin:2px 0 10px}
.agentlab-panel .agentlab-step-table caption {caption-side:top; text-align:left; opacity:.85; padding:0 0 2px}
.agentlab-panel .agentlab-step-table :is(th, td):first-child {padding-left:8px; border-left:4px solid transparent; min-width:3.5em}
.agentlab-panel .agentlab-step-table tr[aria-current] {font-weight:700; background:#7f7f7f26}
.agentlab-panel .agentlab-step-table tr[aria-current] td:first-child {border-left-color:#0072b2}
.agentlab-panel:has(.agentlab-pointer) :is(tr[data-step], [data-run]) {cursor:pointer}
.agentlab-panel:has(.agentlab-pointer) tr[data-step]:hover {background:#7f7f7f33}
.agentlab-panel:has(.agentlab-pointer) img[data-axes] {cursor:crosshair}
.agentlab-panel .agentlab-detail {line-height:1.45; max-width:76em; border-top:2px solid #7f7f7f59; padding-top:6px}
.agentlab-panel .agentlab-detail-head {margin-bottom:6px}
.agentlab-panel .agentlab-section {border-top:1px solid #7f7f7f59; padding:2px 0}
.agentlab-panel .agentlab-section > summary {cursor:pointer; font-weight:700; padding:2px 4px; overflow-wrap:anywhere}
.agentlab-panel .agentlab-section > summary > .agentlab-note {font-weight:400; margin-left:.4em}
.agentlab-panel .agentlab-section > summary:focus-visible, .agentlab-panel .agentlab-detail pre:focus-visible {
  outline:3px solid #0072b2; outline-offset:1px}
.agentlab-panel .agentlab-section > div {padding:2px 4px 8px 18px; overflow-x:auto}
.agentlab-panel .agentlab-rows {display:grid; gap:5px 12px; align-items:baseline;
  grid-template-columns:fit-content(13em) minmax(0, 1fr)}
.agentlab-panel .agentlab-said {display:contents}
.agentlab-panel .agentlab-who {font-weight:700; overflow-wrap:anywhere; unicode-bidi:isolate}
.agentlab-panel .agentlab-who > .agentlab-note {font-weight:400; margin-left:.4em}
.agentlab-panel .agentlab-label {opacity:.85}
.agentlab-panel .agentlab-tool {border-left:3px solid #0072b2; padding:0 0 4px 10px; margin:4px 0 8px}
.agentlab-panel .agentlab-tool.agentlab-failed {border-left:3px dashed #d55e00}
.agentlab-panel .agentlab-detail pre {margin:0; padding:2px 8px; background:#7f7f7f14; border:0; border-radius:3px; color:inherit;
  white-space:pre-wrap; overflow-wrap:anywhere; max-height:24em; overflow:auto; unicode-bidi:isolate; line-height:1.45}
.agentlab-panel .agentlab-detail pre.agentlab-prose {font:inherit; line-height:1.45}
.agentlab-panel .agentlab-detail pre.agentlab-code {font-family:var(--jp-code-font-family, ui-monospace, monospace); font-size:.92em}
.agentlab-panel .agentlab-facts {display:grid; grid-template-columns:max-content minmax(0, 1fr); gap:1px 14px; margin:2px 0}
.agentlab-panel .agentlab-facts dt {opacity:.85; font-weight:400; white-space:nowrap; float:none; width:auto; margin:0; padding:0}
.agentlab-panel .agentlab-facts dd {margin:0; padding:0; float:none; width:auto; overflow-wrap:anywhere; unicode-bidi:isolate}
.agentlab-panel .agentlab-readings, .agentlab-panel .agentlab-readings ul {margin:0; padding-left:1.3em}
.agentlab-panel.jupyter-widgets-disconnected::before {font-family:inherit; font-weight:700; padding:4px 10px;
  border-left:5px solid #d55e00; content:"The kernel behind this panel is gone: its controls do nothing. Run the cell again."}
.agentlab-panel .jupyter-widgets-disconnected::before {display:none}
.agentlab-panel.jupyter-widgets-disconnected > * {opacity:.6}
.agentlab-panel .agentlab-answer-box {flex:none; flex-direction:column-reverse; height:8.5em; min-height:3em; resize:vertical}
.agentlab-panel .agentlab-answer-box {overflow:auto; border:1px solid #7f7f7f59; border-radius:3px; padding:4px 10px; margin:0 2px 8px}
.agentlab-panel .agentlab-answer-box:focus-visible {outline:3px solid #0072b2; outline-offset:1px}
.agentlab-panel .agentlab-answer-box > .widget-html-content {flex:none; margin-bottom:auto}
/* Buttons: their pictures are shapes in the colour of the text, no characters that a screen reader would read out. */
.agentlab-panel [class*="agentlab-icon-"]::before {content:""; display:inline-block; width:.75em; height:.75em; margin-right:.5em}
.agentlab-panel [class*="agentlab-icon-"]::before {background:currentColor; forced-color-adjust:none}
.agentlab-panel .agentlab-icon-run::before {clip-path:polygon(8% 0, 100% 50%, 8% 100%)}
.agentlab-panel .agentlab-icon-step::before {clip-path:polygon(0 0, 62% 50%, 62% 0, 92% 0, 92% 100%, 62% 100%, 62% 50%, 0 100%)}
.agentlab-panel .agentlab-icon-pause::before {clip-path:polygon(5% 0, 38% 0, 38% 100%, 62% 100%, 62% 0, 95% 0, 95% 100%, 5% 100%)}
.agentlab-panel .agentlab-icon-stop::before {clip-path:inset(4%)}
/* The end: what can be done about it. */
.agentlab-panel .agentlab-offer {width:auto; max-width:100%; height:auto; min-height:28px; white-space:normal; line-height:1.3}
.agentlab-panel .agentlab-offer {padding:4px 12px; text-align:left; flex:none; align-self:flex-start}
.agentlab-panel .agentlab-offer-row .agentlab-offer {align-self:center}
.agentlab-panel .agentlab-offer-row {flex-flow:row wrap; align-items:center; gap:2px 10px; overflow:visible}
.agentlab-panel .agentlab-offer-row > .widget-html {flex:1 1 20em; min-width:0; height:auto}
.agentlab-panel .agentlab-ending, .agentlab-panel .agentlab-ending .widget-vbox {overflow:visible}
/* The editor: limit_editor.py and what it is made of. Names that only those who listen need are cut off or out of sight. */
.agentlab-panel .agentlab-editor, .agentlab-panel .agentlab-editor .widget-vbox {overflow:visible}
.agentlab-panel .agentlab-editor .widget-hbox {overflow:visible; align-items:center}
.agentlab-panel .agentlab-message {margin:0 2px; min-height:0; height:auto}
.agentlab-panel :is(.agentlab-message, .agentlab-leaf-name) > .widget-html-content {line-height:1.4; overflow-wrap:anywhere}
.agentlab-panel .agentlab-message .agentlab-fault {margin:1px 0 5px; overflow-wrap:anywhere}
.agentlab-panel .agentlab-heading {margin:6px 2px 0; line-height:1.6; min-height:0; height:auto}
.agentlab-panel .agentlab-first-line > .widget-label {white-space:pre; overflow:hidden; height:28px; line-height:28px}
.agentlab-panel .agentlab-first-line .widget-label-basic span {white-space:pre; overflow:hidden; height:1.5em; line-height:1.5}
.agentlab-panel .agentlab-first-line .widget-label-basic span {display:inline-block; vertical-align:middle}
.agentlab-panel .agentlab-tick {flex:none; margin:0 2px; height:28px; display:flex; align-items:center}
.agentlab-panel .agentlab-tick .widget-label-basic {display:flex; align-items:center; gap:5px; line-height:1.5; width:auto; height:auto}
.agentlab-panel .agentlab-tick input[type=checkbox] {margin:0; flex:none}
.agentlab-panel .agentlab-not .widget-label-basic span {width:1.9em}
.agentlab-panel .agentlab-counts .widget-label-basic span, .agentlab-panel .agentlab-quiet > .widget-label {position:absolute;
  width:1px; height:1px; overflow:hidden; clip-path:inset(50%); white-space:nowrap}
.agentlab-panel .agentlab-counts, .agentlab-panel .agentlab-quiet {position:relative}
.agentlab-panel .agentlab-fields .widget-vbox, .agentlab-panel .agentlab-field-row {width:100%}
.agentlab-panel .agentlab-fields .widget-label {text-align:left}
.agentlab-panel .agentlab-field-row {gap:0 6px}
.agentlab-panel .agentlab-field {margin:1px 2px}
.agentlab-panel .agentlab-node-bar {gap:0 4px; width:100%}
.agentlab-panel .agentlab-node-bar > .agentlab-field, .agentlab-panel .agentlab-leaf-name {flex:1 1 0; min-width:0}
.agentlab-panel .agentlab-node-bar > .agentlab-field > .widget-label {flex:0 1 auto; min-width:min(9.2em, 52%); max-width:60%;
  text-align:left; text-overflow:ellipsis}
.agentlab-panel .agentlab-node-bar > .agentlab-field > :is(input, .widget-input, select) {min-width:3.5em; flex:1 1 0}
.agentlab-panel .agentlab-leaf-name {height:auto; margin:4px 2px}
.agentlab-panel .agentlab-node-bar > .agentlab-quiet {flex:0 1 auto}
.agentlab-panel .agentlab-node-bar > .agentlab-not {margin-left:auto}
.agentlab-panel .agentlab-node-below {padding-left:24px}
.agentlab-panel .agentlab-node-below > .agentlab-field > .widget-label {min-width:8em; text-align:left}
.agentlab-panel .agentlab-parts {margin:0 0 3px 8px; padding-left:8px; border-left:2px solid #7f7f7f73; width:auto}
.agentlab-panel .agentlab-node:has(> .agentlab-node-bar > .agentlab-counts input:not(:checked)) :is(.widget-label, b)
  {text-decoration:line-through}
.agentlab-panel .agentlab-remove {position:relative; flex:none; height:22px; min-width:22px; padding:0; margin:0 2px; background:none}
.agentlab-panel .agentlab-remove {text-indent:200%; white-space:nowrap; overflow:hidden; border-radius:3px}
.agentlab-panel .agentlab-remove:hover:not(:disabled) {background:#7f7f7f33}
.agentlab-panel .agentlab-remove::before, .agentlab-panel .agentlab-remove::after {content:""; position:absolute; left:5px; top:10px;
  width:12px; border-top:2px solid currentColor; transform:rotate(45deg)}
.agentlab-panel .agentlab-remove::after {transform:rotate(-45deg)}
.agentlab-panel .agentlab-add {white-space:pre; overflow:hidden; flex:none; height:24px; line-height:24px; padding:0 8px}
.agentlab-panel .agentlab-adder {margin:2px 0 0}
.agentlab-panel .agentlab-fold {margin-top:6px; border-top:1px solid #7f7f7f59}
.agentlab-panel .agentlab-fold-head {width:auto; background:none; box-shadow:none; padding:0 6px 0 2px; text-align:left;
  flex:none; align-self:flex-start}
.agentlab-panel .agentlab-fold-head {font-weight:700; color:inherit}
.agentlab-panel .agentlab-fold-head:hover {background:#7f7f7f26}
.agentlab-panel .agentlab-fold-head::before {content:""; display:inline-block; margin-right:7px; border:4px solid transparent;
  border-left:6px solid currentColor; border-right:0; vertical-align:0}
.agentlab-panel .agentlab-fold-head.mod-active::before {transform:rotate(90deg)}
.agentlab-panel .agentlab-fold-note {flex:1 1 0; min-width:0; overflow:hidden; white-space:nowrap; text-overflow:ellipsis}
.agentlab-panel .agentlab-fold-bar:not(:has(> .mod-active)) + .agentlab-fold-body {display:none}
.agentlab-panel .agentlab-fold-body {padding:2px 0 6px 14px}
.agentlab-panel .agentlab-ticks {flex-flow:row wrap; gap:0 12px}
.agentlab-panel .agentlab-stacked .agentlab-field {flex-direction:column; height:auto; align-items:stretch; margin:2px}
.agentlab-panel .agentlab-stacked .agentlab-field > .widget-label {text-align:left; height:20px; line-height:20px;
  overflow:visible; max-width:none}
.agentlab-panel .agentlab-stacked .agentlab-field-row {align-items:flex-end}
.agentlab-panel .agentlab-stacked input:not([type=checkbox]) {max-width:9em; flex:none; height:26px}
.agentlab-panel .agentlab-stacked .agentlab-field-row > .agentlab-field {width:auto !important; flex:1 1 0}
.agentlab-panel .agentlab-stacked textarea {height:auto}
.agentlab-panel :is(select, textarea):focus-visible {outline:3px solid #0072b2 !important; outline-offset:1px}
/* The editor ends. */
/* Branches: which run is shown, the family as a table, the form. */
.agentlab-panel .agentlab-strip {padding:3px 10px; border-left:5px solid #0072b2; line-height:1.45; overflow-wrap:anywhere}
.agentlab-panel .agentlab-family :is(td, th) {padding-left:6px; white-space:nowrap; vertical-align:top}
.agentlab-panel .agentlab-family td:nth-child(3) {min-width:12em; max-width:26em; overflow-wrap:anywhere; white-space:normal}
.agentlab-panel .agentlab-family tr[aria-current="true"] td {background:#0072b21f}
.agentlab-panel .agentlab-family code {background:none; color:inherit; font-size:.88em}
.agentlab-panel .agentlab-here {white-space:nowrap}
/* Side by side: a column a run. */
.agentlab-panel .agentlab-columns {display:flex; flex-flow:row wrap; gap:8px; align-items:stretch; overflow:visible}
.agentlab-panel .agentlab-column {flex:1 1 20em; min-width:18em; margin:0; height:auto}
.agentlab-panel .agentlab-column {border:1px solid #7f7f7f59; border-radius:4px; padding:6px 10px}
.agentlab-panel .agentlab-column-head {font-weight:700; line-height:1.5}
.agentlab-panel .agentlab-column .agentlab-meter {grid-template-columns:auto minmax(3em,1fr) auto}
.agentlab-panel .agentlab-column .agentlab-meter > :nth-child(4n) {display:none}
.agentlab-panel .agentlab-column .agentlab-answer pre {overflow-wrap:anywhere; margin:2px 0}
</style>"""
"""Only for the live panel: after a restart of the kernel the page still shows the controls; ipywidgets gives them that class."""

KEPT_STYLE = """<style>
.jp-OutputArea-child:has(+ .jp-OutputArea-child .agentlab-kept) > .jp-OutputArea-output.jupyter-widgets:not(:has(*)) {display:none}
</style>"""
"""For what is kept in the notebook beside the live panel: where that is gone, JupyterLab says so in its place; this says enough."""
