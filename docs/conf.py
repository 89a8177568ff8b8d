"""Sphinx's settings for the site that tools/site.py builds from docs/."""
from docutils import nodes

project = "libds"
author = "the authors of libds"
copyright = "the authors of libds"  # noqa: A001 - Sphinx's name
language = "en"

extensions = ["myst_parser"]
root_doc = "index"
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]  # the keys of reference/config.md, the index of functions

smartquotes = False

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = "libds"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"font-stack": "system-ui, sans-serif", "font-stack--monospace": "ui-monospace, monospace"},
}


def name_cells(_app, doctree, _page):
    """Puts the name of its column into each cell: on a phone a row is a list of its cells (site.css)."""
    for table in doctree.findall(nodes.tgroup):
        names = [cell.astext() for cell in next(table.findall(nodes.thead)).findall(nodes.entry)]
        for row in next(table.findall(nodes.tbody)).findall(nodes.row):
            for name, cell in zip(names, row.findall(nodes.entry)):
                cell.insert(0, nodes.paragraph("", name, classes=["column"]))


def setup(app):
    app.connect("doctree-resolved", name_cells)
