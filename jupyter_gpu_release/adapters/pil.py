"""Pillow: the pixels of images, which others hold as well (``ImageDraw.Draw(image)``, ``image.load()``)."""

from __future__ import annotations

import sys
from typing import Any

from .adapter import Adapter


class PillowAdapter(Adapter):
    """Images keep their memory."""

    def update_in_place(self, old: Any, new: Any) -> bool | None:
        image = sys.modules.get("PIL.Image")
        if image is None or not isinstance(old, image.Image) or type(new) is not type(old):
            return None
        mine, theirs = (vars(each).get("_im") for each in (old, new))
        if not (type(mine) is type(theirs) and hasattr(mine, "paste")):  # closed, or not read yet
            return None
        if (mine.mode, mine.size) == (theirs.mode, theirs.size) and not old.readonly:
            mine.paste(theirs, (0, 0, *mine.size))
            vars(new)["_im"] = mine
            if new.palette is not None:  # told to the memory when the image is looked at
                new.palette.dirty = 1
        return None  # the other attributes are those of any object


ADAPTER = PillowAdapter()
