"""What README and tutorial show, recorded as `make screenshots` does it: the committed pictures are not stale."""

from __future__ import annotations

import re
from pathlib import Path

import gpu_scenes
import pytest
from gpu_api import GpuApi
from lab_bed import execute, open_lab
from PIL import Image, ImageStat
from playwright.sync_api import Browser, Page, expect
from recording import SHOWN_IN, VIEWPORT, WHOLE_S, shortened
from shown_words import FILE, PANEL, assert_not_stale, assert_shows, panel_words, without_what_varies
from sidebar_bed import LOOK, Team, open_sidebar, opened, show_panel
from soak import AT_FULL_SIZE
from stories import README, SIDEBAR, TUTORIAL, FirstPicture, Tutorial, code_blocks, colleague, tutorial_lab

IMAGES = FILE.parent
#: a run in the background that lasts a second may be over before its picture
_LASTING = {"6-background": ("sections",)}
_SIZE = (VIEWPORT["width"], VIEWPORT["height"])


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_tutorial_as_it_is_written(browser: Browser, tmp_path: Path) -> None:
    """From no cluster to none; each step's picture shows what the page says."""
    with tutorial_lab(tmp_path) as lab, opened(browser) as page:
        page.set_viewport_size(VIEWPORT)
        open_lab(page, lab)
        Tutorial(page, lab.root, lambda step: assert_shows(page, f"tutorial-{step}", _LASTING.get(step, ()))).play()


@pytest.mark.thorough
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_readme_s_first_picture(browser: Browser, team: Team, tmp_path: Path) -> None:
    """Filmed at full size alone: that takes half a minute of a CPU."""
    hers = {"JUPYTER_GPU_URL": team.gateway.url, "JUPYTER_GPU_TOKEN": team.grace}
    with colleague(tmp_path, hers) as asks, opened(browser) as page:
        page.set_viewport_size(VIEWPORT)
        open_lab(page, team.lab)
        show_panel(page, 320)
        picture = FirstPicture(page, team.lab, asks)
        words = picture.film(tmp_path) if AT_FULL_SIZE else picture.play()
        _assert_all_in_sight(page)
    if AT_FULL_SIZE:
        _assert_film(tmp_path / "first-cell.webp")
        _assert_pictures(tmp_path, "first-cell")
    assert_not_stale("first-cell", words)


def _assert_all_in_sight(page: Page) -> None:
    notebook = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    cell, plot = notebook.locator(".jp-CodeCell").nth(1), notebook.locator(".jp-CodeCell").nth(2).locator("img").last
    receipt = cell.get_by_text("after the last statement")
    for part in (page.locator(PANEL), page.get_by_role("tree", name="My runs"), cell, receipt, plot):
        expect(part).to_be_in_viewport()


def _assert_film(path: Path) -> None:
    """About 15 seconds in which something happens, all of it of the page: never one colour."""
    film = Image.open(path)
    assert film.size == _SIZE
    frames, shown_ms = set(), 0
    for number in range(film.n_frames):
        film.seek(number)
        film.load()
        shown_ms += film.info["duration"]
        small = film.convert("RGB").resize((112, 68))
        assert len(small.getcolors(maxcolors=112 * 68) or ()) > 100, f"frame {number} shows nothing"
        frames.add(small.tobytes())
    assert abs(shown_ms / 1000 - WHOLE_S) < 0.5
    assert len(frames) > 8


def _assert_pictures(folder: Path, name: str) -> None:
    light, dark = (Image.open(folder / f"{name}-{theme}.png").convert("L") for theme in SHOWN_IN)
    assert light.size == dark.size == _SIZE
    assert ImageStat.Stat(light).mean[0] > 180 > 120 > ImageStat.Stat(dark).mean[0], "not a light and a dark one"


def test_the_committed_film_and_pictures() -> None:
    _assert_film(IMAGES / "first-cell.webp")
    shown = "".join(page.read_text() for page in (README, TUTORIAL, SIDEBAR))
    named = re.findall(r"images/([\w-]+)-(?:light|dark)(?:-\d+)?\.png", shown)
    assert len(set(named)) == 10
    for name in {name for name in named if not name.startswith("sidebar-")}:
        _assert_pictures(IMAGES, name)


def test_the_picture_of_the_sidebar(api: GpuApi, team: Team) -> None:
    page = api.page
    gpu_scenes.busy_day(api)
    open_sidebar(page, team.lab)  # it keeps what it said of these very GPUs and runs in other tests
    show_panel(page, 320)
    execute(page, LOOK)
    expect(page.locator(PANEL)).to_contain_text("ResNet, 40 epochs")
    assert_not_stale("sidebar-busy", panel_words(page))


def test_the_receipt_that_the_tutorial_quotes() -> None:
    (quoted,) = (block for block in code_blocks(TUTORIAL) if block.startswith("✓"))
    shown = {"below cells": ["ran on HOST · N simulated GPU · GPU N", without_what_varies(quoted)]}
    assert_not_stale("tutorial-3-gpu-cell", shown)


@pytest.mark.parametrize(
    ("pauses", "shown"),
    [([1.0, 1.0], [1.0, 1.0]), ([0.25, 6.0, 0.25, 3.0], [0.25, 1.75, 0.25, 1.75]), ([2.0] * 8, [0.5] * 8)],
)
def test_a_film_that_is_too_long_shows_what_stands_still_for_less(pauses: list[float], shown: list[float]) -> None:
    assert shortened(pauses, 4.0) == shown
