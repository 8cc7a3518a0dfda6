"""Pictures and films of a page, small enough for a repository."""

from __future__ import annotations

import base64
import io
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

from PIL import Image
from playwright.sync_api import Page

_COLOURS = 255
#: a film: nothing that happens is shown for longer than this, the end stays, and it takes about this long in all
_STILL_S, _END_S, _WHOLE_S = 0.8, 3.0, 15.0
_SHORTEST_S = 0.08


def write_picture(shot: bytes, path: Path) -> None:
    """A PNG with few colours: a fifth of the bytes, and the eye sees no difference."""
    image = Image.open(io.BytesIO(shot)).convert("RGB")
    image.quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)


class Recording:
    """Films a page while its block runs; written as an animated WebP when the block has ended well."""

    def __init__(self, page: Page, path: Path) -> None:
        """``path``: the file, replaced if it exists."""
        self._session, self._path = page.context.new_cdp_session(page), path
        self._frames: list[tuple[float, bytes]] = []

    def __enter__(self) -> Recording:
        self._session.on("Page.screencastFrame", self._keep)
        self._session.send("Page.startScreencast", {"format": "png"})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session.send("Page.stopScreencast")
        if error is None:
            self._write()

    def _keep(self, event: dict[str, Any]) -> None:
        self._frames.append((event["metadata"]["timestamp"], base64.b64decode(event["data"])))
        self._session.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

    def _write(self) -> None:
        times = [at for at, _ in self._frames]
        pauses = [min(after - before, _STILL_S) for before, after in pairwise(times)]
        scale = min(1.0, (_WHOLE_S - _END_S) / sum(pauses))
        shown, kept_s = [], 0.0
        for (_, shot), pause in zip(self._frames, [*(pause * scale for pause in pauses), _END_S], strict=True):
            kept_s += pause
            if kept_s >= _SHORTEST_S:  # what would be shown for less is left out, its time goes to the next frame
                shown.append((Image.open(io.BytesIO(shot)).convert("RGB"), round(kept_s * 1000)))
                kept_s = 0.0
        images, durations = [image for image, _ in shown], [ms for _, ms in shown]
        images[0].save(
            self._path, save_all=True, append_images=images[1:], duration=durations, loop=0,
            quality=60, method=4, minimize_size=False, kmax=30, allow_mixed=True,
        )  # fmt: skip
