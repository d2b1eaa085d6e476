"""The wheel of agentlab in Pyodide, the CPython of browsers, run by Node."""
