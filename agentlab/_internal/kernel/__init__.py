"""The notebook that runs this code.

May import: the rest of `_internal`.

    front_end       detection of a live page
    interrupts      the stop button, for runs in the background
    ipykernel_mend  messages that reach a kernel which awaits a run; all private API of ipykernel
"""
