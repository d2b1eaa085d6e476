"""How the panel looks: one style sheet, so that parts look alike. Colours hold on white and on near black, and tell nothing alone."""

STYLE = """<style>
.agentlab-panel .agentlab-status {display:flex; flex-wrap:wrap; gap:4px 14px; align-items:baseline; line-height:1.5}
.agentlab-badge {font-weight:700; padding:1px 9px; border-radius:10px; border:1px solid currentColor}
.agentlab-meter {display:grid; grid-template-columns:minmax(9em,auto) minmax(6em,1fr) auto; gap:2px 10px}
.agentlab-meter {align-items:center; line-height:1.6}
.agentlab-bar {height:10px; border-radius:5px; border:1px solid currentColor; overflow:hidden; opacity:.9}
.agentlab-fill {height:100%; background:#0072b2}
.agentlab-fill.near {background:repeating-linear-gradient(45deg,#e69f00 0 6px,#b87f00 6px 9px)}
.agentlab-fill.met {background:repeating-linear-gradient(90deg,#d55e00 0 4px,#8a3d00 4px 6px)}
.agentlab-panel table.agentlab-steps {border-collapse:collapse; font-variant-numeric:tabular-nums; line-height:1.5}
.agentlab-panel .agentlab-steps :is(th, td) {padding:1px 10px 1px 0; text-align:left; border-bottom:1px solid #7f7f7f59}
.agentlab-panel .agentlab-steps th {white-space:nowrap}
.agentlab-panel .agentlab-steps :is(th, td).number {text-align:right}
.agentlab-end {padding:6px 10px; border-left:5px solid #0072b2; margin:4px 0; line-height:1.45}
.agentlab-end.truncated {border-left-color:#d55e00}
.agentlab-fault {padding:4px 10px; border-left:5px solid #d55e00; white-space:pre-wrap; margin:2px 0; line-height:1.4}
.agentlab-note {opacity:.85; line-height:1.4}
.agentlab-panel .agentlab-answer pre {margin:0; padding:0; background:none; border:0; color:inherit; font:inherit; line-height:1.45}
.agentlab-panel .agentlab-answer pre {white-space:pre-wrap; overflow-wrap:anywhere; max-width:80em}
.agentlab-panel > .agentlab-answer pre {max-height:24em; overflow:auto; margin:2px 0 8px; padding:2px 10px; border:1px solid #7f7f7f59}
.agentlab-panel button:focus-visible, .agentlab-panel input:focus-visible {outline:3px solid #0072b2; outline-offset:1px}
</style>"""

LIVE_STYLE = """<style>
.agentlab-panel.jupyter-widgets-disconnected::before {font-family:inherit; font-weight:700; padding:4px 10px;
  border-left:5px solid #d55e00; content:"The kernel behind this panel is gone: its controls do nothing. Run the cell again."}
.agentlab-panel .jupyter-widgets-disconnected::before {display:none}
.agentlab-panel.jupyter-widgets-disconnected > * {opacity:.6}
.agentlab-panel .agentlab-answer-box {flex:none; flex-direction:column-reverse; height:8.5em; min-height:3em; resize:vertical}
.agentlab-panel .agentlab-answer-box {overflow:auto; border:1px solid #7f7f7f59; border-radius:3px; padding:4px 10px; margin:0 2px 8px}
.agentlab-panel .agentlab-answer-box:focus-visible {outline:3px solid #0072b2; outline-offset:1px}
.agentlab-panel .agentlab-answer-box > .widget-html-content {flex:none; margin-bottom:auto}
</style>"""
"""Only for the live panel: after a restart of the kernel the page still shows the controls; ipywidgets gives them that class."""
