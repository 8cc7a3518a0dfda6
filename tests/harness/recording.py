"""Pictures and films of JupyterLab's page, small enough for a repository."""

from __future__ import annotations

import base64
import io
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

from lab_bed import execute
from PIL import Image
from playwright.sync_api import Page

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark", "contrast": "JupyterLab Dark High Contrast"}
SHOWN_IN = ("light", "dark")
VIEWPORT = {"width": 1120, "height": 680}
_COLOURS = 255
#: a film takes this long in all; its end stays for at least so much of it
WHOLE_S, _END_S = 15.0, 3.0
_SHORTEST_S = 0.08


def set_theme(page: Page, theme: str) -> None:
    """Show JupyterLab in one of `THEMES`."""
    execute(page, "apputils:change-theme", {"theme": THEMES[theme]})
    page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=THEMES[theme])
    page.wait_for_selector("#jupyterlab-splash", state="detached")  # until its style sheets are there


def take(page: Page, name: str, target: Path) -> None:
    """A picture of the whole page in each theme; the light one stays."""
    page.mouse.move(700, 5)
    for theme in reversed(SHOWN_IN):
        set_theme(page, theme)
        write_picture(page.screenshot(), target / f"{name}-{theme}.png")


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
        pauses = shortened([after - before for before, after in pairwise(times)], WHOLE_S - _END_S)
        shown, kept_s = [], 0.0
        for (_, shot), pause in zip(self._frames, [*pauses, WHOLE_S - sum(pauses)], strict=True):
            kept_s += pause
            if kept_s >= _SHORTEST_S:  # what would be shown for less is left out, its time goes to the next frame
                shown.append((Image.open(io.BytesIO(shot)).convert("RGB"), round(kept_s * 1000)))
                kept_s = 0.0
        images, durations = [image for image, _ in shown], [ms for _, ms in shown]
        images[0].save(
            self._path,
            save_all=True,
            append_images=images[1:],
            duration=durations,
            loop=0,
            quality=60,
            method=4,
            minimize_size=False,
            kmax=30,
            allow_mixed=True,
        )


def shortened(pauses: list[float], whole_s: float) -> list[float]:
    """Cut the longest pauses to one length, so that all last ``whole_s`` at most: what moves keeps its pace."""
    left_s, longest_s = whole_s, 0.0
    for number, pause in enumerate(sorted(pauses)):
        longest_s = left_s / (len(pauses) - number)
        if pause > longest_s:
            return [min(each, longest_s) for each in pauses]
        left_s -= pause
    return pauses
