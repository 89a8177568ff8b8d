"""Sphinx's settings for the site that tools/site.py builds from docs/."""
project = "libds"
author = "the authors of libds"
copyright = "the authors of libds"  # noqa: A001 - Sphinx's name
language = "en"

extensions = ["myst_parser"]
root_doc = "index"
myst_heading_anchors = 4

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
