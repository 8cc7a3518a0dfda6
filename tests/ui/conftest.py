"""One JupyterLab beside a real cluster, the system's Chromium, and the panel in it: with the real answers, or with
answers that a test decides.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import gpu_scenes
import pytest
from gpu_api import GpuApi
from lab_bed import chromium, execute, launch, running_lab
from nvml_bed import FakeGpus, build_library
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright
from sidebar_bed import CONFIG, LOOK, Team, begin_anew, close_all, open_sidebar, opened, row, without_errors

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.home import read_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.admin import TokenRequest

BUNDLE = Path(__file__).parents[2] / "jupyter_gpu_release" / "labextension" / "package.json"


# a machine with other work to do takes seconds for a page
expect.set_options(timeout=30_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser or a bundle there is nothing to look at; in CI, whose ``.ci/run`` installs both, that fails."""
    missing = "no chromium here" if chromium() is None else "" if BUNDLE.exists() else "run `make bundle` first"
    if missing and os.environ.get("CI") == "true":
        raise pytest.UsageError(f"the sidebar cannot be tested: {missing}")
    for item in items:
        if missing and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A failure says what the page showed then: a log is all that CI keeps."""
    report = yield
    fixtures = getattr(item, "funcargs", {})
    page = fixtures.get("page") or fixtures.get("shown")
    if call.when == "call" and report.failed and page is not None:
        for name, place in (("sidebar", "#jupyter-gpu-release-panel"), ("notifications", ".Toastify")):
            with contextlib.suppress(Error):
                words = page.locator(place).first.inner_text(timeout=1000).split("\n")
                report.sections.append((f"the {name} then", " | ".join(words)))  # a line: what failed stays in sight
    return report


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def team(cluster: Ready, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """One JupyterLab for all tests. Its sidebar looks by itself every five minutes only: changes must be told."""
    url = cluster.connection.url
    gpus = FakeGpus(build_library(tmp_path_factory.mktemp("nvml")), tmp_path_factory.mktemp("gpus"), gpus=1)
    with GatewayClient(url, read_secret(Path(cluster.connection.token_file))) as gateway:
        ada, grace = (gateway.create_token(TokenRequest(name, "user", 3600.0)).secret for name in ("ada", "grace"))
        environment = {"JUPYTER_GPU_URL": url, "JUPYTER_GPU_TOKEN": ada, **gpus.environment}
        with running_lab(
            tmp_path_factory.mktemp("lab"),
            environment=environment,
            config=CONFIG.format(device=str(gpus.device)),
            settings={"refreshIntervalS": 300, "notifyAfterS": 0},
        ) as lab:
            yield Team(lab, gpus, gateway, grace)


@pytest.fixture(scope="session")
def page_of_all(browser: Browser, team: Team) -> Iterator[Page]:
    """One page for all modules: to load JupyterLab costs five seconds of CPU."""
    with opened(browser) as page:
        open_sidebar(page, team.lab)
        yield page


@pytest.fixture(scope="module")
def page(page_of_all: Page) -> Iterator[Page]:
    """JupyterLab with nothing open but the sidebar."""
    with without_errors(page_of_all):
        begin_anew(page_of_all)
        yield page_of_all


@pytest.fixture(scope="session")
def played_of_all(browser: Browser, team: Team) -> Iterator[GpuApi]:
    """Another page, with the extension's routes and events played."""
    with opened(browser) as page:
        api = GpuApi(page)
        open_sidebar(page, team.lab)
        yield api


@pytest.fixture(scope="module")
def played(played_of_all: GpuApi) -> Iterator[GpuApi]:
    """It with nothing open but the sidebar."""
    with without_errors(played_of_all.page):
        begin_anew(played_of_all.page)
        yield played_of_all


@pytest.fixture
def api(played: GpuApi) -> GpuApi:
    """The routes as new, and a panel that shows nothing of the test before."""
    gpu_scenes.between(played)
    close_all(played.page)
    execute(played.page, LOOK)
    expect(row(played.page, "GPUs", "between tests")).to_be_visible()
    return played


@pytest.fixture
def shown(api: GpuApi) -> Page:
    """The page with the sidebar. What ``api`` answers can be changed at any time; then ``LOOK``."""
    return api.page
