"""The words that a page shows while a picture of it is taken: as long as they are the same, the picture is not stale.

`make screenshots` writes those of each picture beside the pictures; tests read them anew from the page as it is now.
What differs from one recording to the next (times, sizes, ids, the machine's name) is left out.
"""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Collection
from pathlib import Path

from lab_bed import execute
from playwright.sync_api import Page

PANEL = "#jupyter-gpu-release-panel"
Words = dict[str, list[str]]
FILE = Path(__file__).parents[2] / "docs" / "images" / "words.json"
_PATIENCE_S = 30.0
_DAY = "(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
_VARIES = (
    (re.compile(rf"\b{_DAY}\b"), "DAY"),
    (re.compile(r"run \d{8}-\d{6}-[0-9a-f]{8}"), "run ID"),
    (re.compile(rf"\b{re.escape(platform.node())}\b"), "HOST"),
    (re.compile(r"\d+(?:\.\d+)? (?:ms|s|min|h|B|KiB|MiB|GiB)\b(?: \d+ (?:min|s)\b)?"), "…"),
    (re.compile(r" \(… before its first statement\)"), ""),  # from half a second on: on a busy machine
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
)
#: places of the sidebar that do not depend on whose runs there are
_PLACES = {
    "sections": f"{PANEL} .jp-AccordionPanel-title",
    "tiles": f"{PANEL} .jp-GpuRelease-tileLabel",
    "buttons": f"{PANEL} :is(button, jp-button):not([role='treeitem'] *)",
    "usage": f"{PANEL} .jp-GpuRelease-usage th",
    "status bar": ".jp-GpuRelease-statusItem",
}
_READ = """nodes => nodes.filter(node => node.checkVisibility()).map(
  node => node.innerText.trim() || node.getAttribute('aria-label') || node.title)"""
_OF_A_RUN = re.compile(r"^(?:[✓✗■⚠] |ran on ).*", re.MULTILINE)


def words_of(page: Page) -> Words:
    """The words of the sidebar's headings, buttons and figures, and below the notebook's GPU cells."""
    found = {name: list(dict.fromkeys(page.locator(place).evaluate_all(_READ))) for name, place in _PLACES.items()}
    outputs = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output").all_inner_texts()
    found["below cells"] = [line for text in outputs for line in _OF_A_RUN.findall(text)]
    return {name: [without_what_varies(text) for text in texts] for name, texts in found.items()}


def panel_words(page: Page) -> Words:
    """All that the sidebar says, where its answers are played."""
    return {"sidebar": [without_what_varies(line) for line in page.locator(PANEL).inner_text().splitlines() if line]}


def keep(picture: str, words: Words, file: Path) -> None:
    """Note the words of a picture that has been taken."""
    noted = _read(file)
    noted[picture] = words
    file.write_text(json.dumps(noted, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def assert_shows(page: Page, picture: str, places: Collection[str] = ()) -> None:
    """Fail where the page does not come to show the words of the committed picture: some figures arrive late.

    ``places``: only these are compared.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        words = {place: texts for place, texts in words_of(page).items() if place in places or not places}
        if time.monotonic() > deadline_s or all(_read(FILE)[picture].get(place) == words[place] for place in words):
            break
        page.wait_for_timeout(500)
        execute(page, "jupyter-gpu-release:refresh")  # of a run that has just ended the account may be a second older
    assert_not_stale(picture, words)


def assert_not_stale(picture: str, words: Words) -> None:
    """Fail where the committed picture shows other words than the page."""
    in_picture = _read(FILE).get(picture, {})
    other = {
        place: (in_picture.get(place, []), now) for place, now in words.items() if in_picture.get(place, []) != now
    }
    said = "\n".join(f"{place}: the picture has {then}, the page {now}" for place, (then, now) in other.items())
    assert not other, f"docs/images/{picture} is stale: run `make screenshots` and look at what it recorded\n{said}"


def without_what_varies(text: str) -> str:
    """The text as it is the same in each recording."""
    text = " ".join(text.split())
    for pattern, instead in _VARIES:
        text = pattern.sub(instead, text)
    return text


def _read(file: Path) -> dict[str, Words]:
    noted: dict[str, Words] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return noted
