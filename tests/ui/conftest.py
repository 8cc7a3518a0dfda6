"""A real JupyterLab, the system's Chromium, and the panel in it with answers that a test decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_api import GpuApi
from lab_bed import Lab, chromium, execute, launch, open_lab, running_lab
from playwright.sync_api import Browser, Page, sync_playwright

BUNDLE = Path(__file__).parents[2] / "jupyter_gpu_release" / "labextension" / "package.json"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser or a bundle there is nothing to look at; ``.ci/run`` installs what it takes."""
    missing = "no chromium here" if chromium() is None else "" if BUNDLE.exists() else "run `make bundle` first"
    for item in items:
        if missing and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One JupyterLab for all tests that answer for the cluster themselves."""
    with running_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own (cookies, storage); errors of our code fail the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    page = context.new_page()
    page.set_default_timeout(20_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not [error for error in errors if "gpu" in error.lower()]


@pytest.fixture
def api(page: Page) -> GpuApi:
    """The routes of the extension, played."""
    return GpuApi(page)


@pytest.fixture
def shown(page: Page, lab: Lab, api: GpuApi) -> Page:
    """JupyterLab with the sidebar open. What ``api`` answers can be changed at any time; see :func:`look`."""
    open_lab(page, lab)
    execute(page, "jupyter-gpu-release:open")
    page.wait_for_selector(".jp-GpuRelease")
    return page
