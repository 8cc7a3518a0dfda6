"""The sidebar in a server of a real JupyterHub: behind its proxy, with its login, below its path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hub_bed import HubBed
from lab_bed import Lab, execute, open_lab
from playwright.sync_api import Browser, Page, expect
from server_kernel_bed import ServerKernel
from sidebar_bed import open_notebook, opened, press, reload_lab, row, show_panel, write_notebook
from soak import ONLY_IN_SOAK

from jupyter_gpu_release.client.autostart import Ready

_HELD = """
get_ipython().run_cell_magic("gpu_train", "--gpus 1 --async --name overnight", "import time; time.sleep(600)")
"""
_CELL = """%%gpu_train --name training
import time
print("epoch 1")
time.sleep(600)"""
#: a Hub and a server of it start
pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough]


class HubsLab(Lab):
    """A page without a token in its address: who is logged in at the Hub is let in."""

    def page_url(self, path: str = "lab") -> str:
        return f"{self.url}/{path}?reset"


@pytest.fixture(scope="module")
def hub(cluster: Ready, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubBed]:
    bed = HubBed(tmp_path_factory.mktemp("hub"), cluster, ["--LabApp.expose_app_in_browser=True"])
    yield bed
    bed.stop()


@contextmanager
def _logged_in(browser: Browser, hub: HubBed, user: str, folder: Path) -> Iterator[Page]:
    """JupyterLab with its sidebar, as somebody sees it who logs in at the Hub."""
    with opened(browser) as page:
        page.goto(f"{hub.url}/hub/login")
        page.locator("#username_input").fill(user)
        page.locator("#password_input").fill("anything")
        page.locator("#login_submit").click()
        page.wait_for_url(re.compile(f"/user/{user}/lab"))
        open_lab(page, HubsLab(f"{hub.url}/user/{user}", "", folder))
        show_panel(page, 420)
        yield page


def _cancel(page: Page, name: str) -> None:
    press(row(page, "My runs", name), "Cancel")
    page.get_by_role("button", name="Cancel the run").click()
    icon = row(page, "My runs", name).locator(".jp-GpuRelease-icon")
    expect(icon).to_have_attribute("title", re.compile("^Cancelled:"))


def test_a_user_of_a_hub_sees_and_cancels_her_run(browser: Browser, hub: HubBed, tmp_path: Path) -> None:
    kernel = ServerKernel(hub.server("ann"))  # type: ignore[arg-type]
    kernel.run(_HELD)
    kernel.client.stop_channels()
    with _logged_in(browser, hub, "ann", tmp_path) as page:
        expect(row(page, "My runs", "overnight")).to_have_attribute("aria-label", re.compile("Running"))
        expect(row(page, "GPUs", "you")).to_be_visible()
        _cancel(page, "overnight")


@ONLY_IN_SOAK
def test_a_cell_in_a_hubs_server_heals_after_a_reload_and_when_it_is_cancelled(
    browser: Browser, hub: HubBed, tmp_path: Path
) -> None:
    hub.server("eve")
    write_notebook(hub.homes / "eve" / "training.ipynb", "%load_ext jupyter_gpu_release", _CELL)
    with _logged_in(browser, hub, "eve", tmp_path) as page:
        cell = open_notebook(page, "training.ipynb")
        execute(page, "notebook:run-all-cells")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("epoch 1", timeout=60_000)
        reload_lab(page)
        cell = open_notebook(page, "training.ipynb")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("epoch 1")
        expect(cell.locator(".jp-InputPrompt").first).to_contain_text("*")
        _cancel(page, "training")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("RunCancelledError: cancelled by you")
        reload_lab(page)
        cell = open_notebook(page, "training.ipynb")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("RunCancelledError: cancelled by you")
        expect(cell.locator(".jp-InputPrompt").first).not_to_contain_text("*")
