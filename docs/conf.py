"""Settings of the documentation site: ``make docs`` builds it with Sphinx, warnings are errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "jupyter_gpu_release"
author = "The jupyter_gpu_release developers"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "moved_pages",
    "outside_pages",
    "themed_pictures",
]
exclude_patterns = ["_build", "_ext", "examples/*"]
smartquotes = False  # `--gpus` stays what one types

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # `answer = !command` is IPython, not Python
nb_execution_mode = "off"  # `make examples` runs them; the site shows what they printed

autodoc_typehints = "none"  # the numpy sections say types in words
autodoc_member_order = "bysource"

html_theme = "pydata_sphinx_theme"
html_title = "jupyter_gpu_release"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "search-scorer.js")
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 5,
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": []}
