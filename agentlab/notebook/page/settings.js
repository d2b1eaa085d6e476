// The limits and the stop condition of the open run, to be edited while it runs.

/** The editor in the drawer: one row for each limit. */
function makeSettings(store, send) {
  const body = make("div", { class: "page-settings" });
  const { node } = section("Limits", body, { name: "limits" });
  return { node, update: () => {} };
}
