"""The page of a run: one HTML file.

May import: `notebook.panel`, and what is below it.

    data       a run as plain JSON
    rich_text  texts and values as safe HTML
"""
