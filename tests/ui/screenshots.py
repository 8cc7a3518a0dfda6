"""Records pictures: ``make screenshots`` those of README and tutorial, ``--all FOLDER`` the sidebar in every state."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "harness"))

import gpu_scenes
from gpu_api import GpuApi
from lab_bed import Lab, execute, launch, open_lab, running_lab
from playwright.sync_api import Browser, Page, sync_playwright
from recording import SHOWN_IN, THEMES, VIEWPORT, set_theme, take, write_picture
from shown_words import FILE, keep, panel_words, words_of
from sidebar_bed import VIEWPORT as PANEL_VIEWPORT
from sidebar_bed import show_panel
from stories import NO_NOTIFICATIONS, FirstPicture, Tutorial, colleague, tutorial_lab

from jupyter_gpu_release.client.home import HomePaths, read_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded
from jupyter_gpu_release.protocol.admin import TokenRequest

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTHS_PX = (220, 480)
PANEL_PX = 320
_LOOKS = 40
Scene = Callable[[GpuApi], None]


SCENES: dict[str, Scene] = {
    "busy": gpu_scenes.busy_day,
    "simulated": gpu_scenes.simulated,
    "crowd": gpu_scenes.crowd,
    "no-cluster": gpu_scenes.no_cluster,
    "no-gpu": gpu_scenes.no_gpu,
    "gateway-down": gpu_scenes.gateway_down,
    "not-permitted": lambda api: setattr(api, "status", 403),
}


def picture(browser: Browser, lab: Lab, scene: str, theme: str, target: Path, *, widths: tuple[int, ...]) -> None:
    """One picture of the panel for each width."""
    page = browser.new_page(viewport=PANEL_VIEWPORT, device_scale_factor=2 if len(widths) < 2 else 1)
    api = GpuApi(page)
    SCENES[scene](api)
    open_lab(page, lab)
    set_theme(page, theme)
    for width in widths:
        show_panel(page, width)
        _fill_sparklines(page, api)
        page.wait_for_timeout(1500)
        page.mouse.move(900, 500)
        panel = page.locator("#jupyter-gpu-release-panel")
        write_picture(panel.screenshot(), target / f"sidebar-{scene}-{theme}-{width}.png")
        keep(f"sidebar-{scene}", panel_words(page), target / FILE.name)
    page.close()


def _fill_sparklines(page: Page, api: GpuApi) -> None:
    """Five minutes of use in a moment: the page's clock runs from five minutes ago to now."""
    page.evaluate(
        "() => { window.realNow ??= Date.now; window.late = 300000;"
        " Date.now = () => window.realNow.call(Date) - window.late; }"
    )
    document = api.status
    gpus = (
        []
        if isinstance(document, int) or not document["cluster"]
        else [(gpu, gpu["utilization"]) for node in document["cluster"]["nodes"] for gpu in node["gpus"]]
    )
    for step in range(_LOOKS):
        for number, (gpu, now) in enumerate(gpus):
            if gpu["utilization"] is not None and gpu["state"] in ("running", "warm"):
                wave = 0.5 + 0.4 * math.sin(step / (2 + number % 3) + number)
                is_over = gpu["state"] == "warm" and step > _LOOKS / 2
                gpu["utilization"] = now if step == _LOOKS - 1 else 0.0 if is_over else wave
        page.evaluate(f"window.late = {300_000 * (1 - (step + 1) / _LOOKS)}")
        asked = api.asked
        execute(page, "jupyter-gpu-release:refresh")
        while api.asked == asked:
            page.wait_for_timeout(20)


@contextlib.contextmanager
def _page(browser: Browser, lab: Lab, scale: float) -> Iterator[Page]:
    page = browser.new_page(viewport=VIEWPORT, device_scale_factor=scale)
    page.set_default_timeout(120_000)
    open_lab(page, lab)
    set_theme(page, "light")
    yield page
    page.close()


def record_tutorial(browser: Browser, folder: Path, target: Path) -> None:
    """A picture for each step, from no cluster to none."""
    with tutorial_lab(folder) as lab, _page(browser, lab, 1) as page:
        Tutorial(page, lab.root, lambda step: _take_step(page, f"tutorial-{step}", target)).play()


def _take_step(page: Page, name: str, target: Path) -> None:
    keep(name, words_of(page), target / FILE.name)
    take(page, name, target)


def record_first_picture(browser: Browser, folder: Path, target: Path) -> None:
    """The README's first picture and its animation: one of a team, a cell, the sidebar."""
    home = HomePaths(folder / "cluster")
    try:
        ready = start_embedded(home=home, asked=StartOptions(simulated=4), progress=lambda words: None)
        url = ready.connection.url
        with GatewayClient(url, read_secret(Path(ready.connection.token_file))) as gateway:
            ada, grace = (gateway.create_token(TokenRequest(name, "user", 3600.0)).secret for name in ("ada", "grace"))
        hers, mine = ({"JUPYTER_GPU_URL": url, "JUPYTER_GPU_TOKEN": token} for token in (grace, ada))
        with (
            running_lab(folder, environment=mine, settings=NO_NOTIFICATIONS) as lab,
            colleague(folder, hers) as asks,
            _page(browser, lab, 1) as page,
        ):
            show_panel(page, PANEL_PX)
            words = FirstPicture(page, lab, asks).film(target)
            keep("first-cell", words, target / FILE.name)
    finally:
        stop_embedded(home)


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, help="every scene, theme and width, into this folder")
    parser.add_argument("--scene", action="append", help="with --all: only these")
    parser.add_argument("--only", choices=("sidebar", "tutorial", "first-cell"), help="not all that documents show")
    parser.add_argument("--into", type=Path, default=IMAGES, help="the folder (docs/images)")
    asked = parser.parse_args()
    with sync_playwright() as playwright:
        browser = launch(playwright)
        target = asked.all or asked.into
        target.mkdir(parents=True, exist_ok=True)
        if asked.all or asked.only in (None, "sidebar"):
            _record_sidebar(browser, target, asked)
        for name, record in (("tutorial", record_tutorial), ("first-cell", record_first_picture)):
            if not asked.all and asked.only in (None, name):
                with tempfile.TemporaryDirectory() as folder:
                    record(browser, Path(folder), target)
        browser.close()


def _record_sidebar(browser: Browser, target: Path, asked: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, running_lab(Path(folder)) as lab:
        for scene in asked.scene or (SCENES if asked.all else ["busy"]):
            for theme in THEMES if asked.all else SHOWN_IN:
                picture(browser, lab, scene, theme, target, widths=WIDTHS_PX if asked.all else (PANEL_PX,))


if __name__ == "__main__":
    main()
