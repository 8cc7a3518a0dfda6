"""Shows a picture ``…-light.png`` in the light theme, and ``…-dark.png`` in the dark one; a width may follow.

Drawings (``….svg``) become part of the page: their lines have the colour of its text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.transforms import SphinxTransform

_LIGHT = re.compile(r"-light((?:-\d+)?\.png)$")


class BothThemes(SphinxTransform):
    """Adds the dark picture to each light one that has one."""

    default_priority = 200  # before Sphinx collects the files of images

    def apply(self, **keywords: Any) -> None:
        """Called for each page."""
        page = Path(self.env.doc2path(self.env.docname)).parent
        for light in list(self.document.findall(nodes.image)):
            dark_uri = _LIGHT.sub(r"-dark\1", light["uri"])
            if dark_uri == light["uri"] or not (page / dark_uri).exists():
                continue
            dark = light.deepcopy()
            dark["uri"] = dark_uri
            light["classes"].append("only-light")
            dark["classes"].append("only-dark")
            light.parent.insert(light.parent.index(light) + 1, dark)


class Drawings(SphinxTransform):
    """Puts the content of each SVG file in place of its image."""

    default_priority = 200

    def apply(self, **keywords: Any) -> None:
        """Called for each page."""
        path = Path(self.env.doc2path(self.env.docname))
        for image in list(self.document.findall(nodes.image)):
            if image["uri"].endswith(".svg"):
                file = path.parent / image["uri"]
                self.env.note_dependency(str(file))
                image.replace_self(nodes.raw("", file.read_text(encoding="utf-8"), format="html"))


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(BothThemes)
    app.add_transform(Drawings)
    return {"parallel_read_safe": True}
