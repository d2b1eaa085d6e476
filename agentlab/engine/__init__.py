"""The loop, top to bottom: a run (drive), its steps (step), a turn of the model (take_turn, turns), a call (ask, calls)."""
