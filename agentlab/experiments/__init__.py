"""The same task over agents, prompts and settings: what `lab.Experiment` is made of."""
