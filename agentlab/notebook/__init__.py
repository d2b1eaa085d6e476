"""The notebook interface: cards of values, the panel, the explorer, and the magics.

The only package that imports ipywidgets, anywidget and IPython. `display` and `cards` load neither of them, nor pandas.
"""
