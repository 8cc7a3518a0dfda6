"""Pictures of the sidebar for people to look at: ``make screenshots`` (README), ``--all FOLDER`` (every state)."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "harness"))

import gpu_scenes
from gpu_api import GpuApi
from lab_bed import Lab, execute, launch, open_lab, running_lab
from playwright.sync_api import Browser, Page, sync_playwright
from sidebar_bed import show_panel

IMAGES = Path(__file__).parents[2] / "docs" / "images"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark", "contrast": "JupyterLab Dark High Contrast"}
WIDTHS_PX = (220, 480)
_LOOKS = 40
Scene = Callable[[GpuApi], None]


def _as_of_today(api: GpuApi) -> None:
    """A busy day without what no cluster tells yet (start estimates)."""
    gpu_scenes.busy_day(api)
    assert not isinstance(api.status, int)
    for waiting in api.status["cluster"]["queue"]:
        waiting["start_estimate_s"] = None


SCENES: dict[str, Scene] = {
    "busy": _as_of_today,
    "simulated": gpu_scenes.simulated,
    "crowd": gpu_scenes.crowd,
    "no-cluster": gpu_scenes.no_cluster,
    "no-gpu": gpu_scenes.no_gpu,
    "gateway-down": gpu_scenes.gateway_down,
    "not-permitted": lambda api: setattr(api, "status", 403),
}


def picture(browser: Browser, lab: Lab, scene: str, theme: str, target: Path, *, widths: tuple[int, ...]) -> None:
    """One picture of the panel for each width."""
    page = browser.new_page(viewport={"width": 1100, "height": 1000}, device_scale_factor=2 if len(widths) < 2 else 1)
    api = GpuApi(page)
    SCENES[scene](api)
    open_lab(page, lab)
    execute(page, "apputils:change-theme", {"theme": THEMES[theme]})
    for width in widths:
        show_panel(page, width)
        _fill_sparklines(page, api)
        page.wait_for_timeout(1500)
        page.mouse.move(900, 500)
        page.locator("#jupyter-gpu-release-panel").screenshot(path=target / f"sidebar-{scene}-{theme}-{width}.png")
    page.close()


def _fill_sparklines(page: Page, api: GpuApi) -> None:
    """Five minutes of use in a moment: the page's clock runs from five minutes ago to now."""
    page.evaluate("() => { window.realNow ??= Date.now; window.late = 300000;"
                  " Date.now = () => window.realNow.call(Date) - window.late; }")  # fmt: skip
    document = api.status
    gpus = [] if isinstance(document, int) or not document["cluster"] else [
        (gpu, gpu["utilization"]) for node in document["cluster"]["nodes"] for gpu in node["gpus"]
    ]  # fmt: skip
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


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, help="every scene, theme and width, into this folder")
    parser.add_argument("--scene", action="append", help="with --all: only these")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_lab(Path(folder)) as lab, sync_playwright() as playwright:
        browser = launch(playwright)
        target = asked.all or IMAGES
        target.mkdir(parents=True, exist_ok=True)
        for scene in asked.scene or (SCENES if asked.all else ["busy"]):
            for theme in THEMES if asked.all else ("light", "dark"):
                picture(browser, lab, scene, theme, target, widths=WIDTHS_PX if asked.all else (320,))
        browser.close()


if __name__ == "__main__":
    main()
