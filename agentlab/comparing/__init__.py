"""Groups of runs compared: shares and means with intervals, differences on the same prompts, agreement."""
