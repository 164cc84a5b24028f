"""How Sphinx builds these pages: `scripts/docs`. Nothing is fetched, while building or by the pages."""

import re
import sys
from importlib import metadata
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

project = "kernelcast"
author = "the kernelcast authors"
project_copyright = "the kernelcast authors; Apache-2.0"
release = metadata.version("kernelcast")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["results", "examples", "images"]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
# links to headings, `page.md#heading`, as forges have them
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"kernelcast {release}"
html_static_path = ["_static"]
html_css_files = ["kernelcast.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "github-dark"
highlight_language = "text"
copybutton_exclude = ".linenos, .gp, .go"

# single backticks in docstrings are code, as in Markdown
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# a field is explained under Attributes, where napoleon puts it
autodoc_default_options = {"undoc-members": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Shapes", "params_style")]


def markdown_math(app: Sphinx, what: str, name: str, of: object, options: object, lines: list[str]) -> None:
    """Formulas in docstrings are in dollars, as in these pages."""
    text = "\n".join(lines)
    text = re.sub(r"^( *)\$\$(.+?)\$\$", _display, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(?<![\\$\w])\$([^$\n]+)\$", r":math:`\1`", text)
    lines[:] = text.split("\n")


def _display(found: re.Match[str]) -> str:
    indent, formula = found.groups()
    # one line, so that no line of it is less indented than the first
    return f"{indent}.. math:: {' '.join(formula.split())}\n"


def _inline_formula(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _block_formula(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Formulas as MathML, which browsers draw themselves: MathJax would come from a network."""
    app.add_html_math_renderer("mathml", (_inline_formula, None), (_block_formula, None))
    app.connect("autodoc-process-docstring", markdown_math)
