"""A real JupyterLab in folders of its own, and the system's Chromium that looks at it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright
from ports import free_port

_CHROMIUM_ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-color-profile=srgb",
]  # fmt: skip
_UP_WITHIN_S = 120.0
_CONFIG = """
c.LabApp.expose_app_in_browser = True
c.JupyterNotebookApp.expose_app_in_browser = True
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
c.IdentityProvider.token = {token!r}
c.ServerApp.root_dir = {root!r}
c.ServerApp.open_browser = False
c.ServerApp.allow_root = True
c.ServerApp.port = {port}
c.ServerApp.port_retries = 0
c.YDocExtension.disable_rtc = not {collaborates}
"""


@dataclass(frozen=True)
class Lab:
    """A running server: where it is, its token, the folder of its notebooks."""

    url: str
    token: str
    root: Path

    def page_url(self, path: str = "lab") -> str:
        """A page of it, in a workspace that is as new."""
        return f"{self.url}/{path}?token={self.token}&reset"


def chromium() -> str | None:
    """The system's Chromium."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def launch(playwright: Playwright) -> Browser:
    """Start Chromium."""
    return playwright.chromium.launch(executable_path=chromium(), args=_CHROMIUM_ARGUMENTS)


@contextlib.contextmanager
def running_lab(
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    config: str = "",
    settings: Mapping[str, object] | None = None,
    collaborates: bool = False,
) -> Iterator[Lab]:
    """A server below ``folder`` until the block ends.

    ``config``: more lines of its configuration file. ``settings``: what the user has set for the sidebar.
    """
    root = folder / "notebooks"
    root.mkdir(parents=True, exist_ok=True)
    token, port = secrets.token_hex(16), free_port()
    file = folder / "config" / "jupyter_server_config.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(_CONFIG.format(token=token, root=str(root), port=port, collaborates=collaborates) + config)
    # or the first page asks
    _set(folder / "settings", "@jupyterlab/apputils-extension/notification", {"fetchNews": "false"})
    _set(folder / "settings", "jupyter-gpu-release/plugin", settings or {})
    names = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
             "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
             "IPYTHONDIR": "ipython", "JUPYTER_GPU_HOME": "gpu"}  # fmt: skip
    own = {name: str(folder / path) for name, path in names.items()}
    command = [sys.executable, "-m", "jupyterlab", f"--config={file}"]  # `jupyter lab` would take the first one of PATH
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **own, **(environment or {})}, stdout=log, stderr=log, cwd=root
        )
    try:
        lab = Lab(f"http://127.0.0.1:{port}", token, root)
        _wait_up(lab, process, folder / "server.log")
        yield lab
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _set(settings: Path, plugin: str, values: Mapping[str, object]) -> None:
    file = settings / f"{plugin}.jupyterlab-settings"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(dict(values)))


def open_lab(page: Page, lab: Lab, path: str = "lab") -> None:
    """Load the page and wait until it is there."""
    page.goto(lab.page_url(path))
    page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=60_000)
    page.wait_for_selector(".jp-SideBar.jp-mod-left .lm-TabBar-tab")
    if path == "lab":  # the launcher comes last, and takes the focus from whoever has it then
        page.wait_for_function("() => document.activeElement?.closest('.jp-Launcher')", timeout=60_000)


def execute(page: Page, command: str, arguments: Mapping[str, object] | None = None) -> None:
    """Begin a command of the front end."""
    text = json.dumps(dict(arguments or {}))
    page.wait_for_function("name => window.jupyterapp?.commands.hasCommand(name)", arg=command)
    # what a command gives back (a widget, say) does not fit through the line; run-all ends with the last cell
    page.evaluate(f"() => {{ window.jupyterapp.commands.execute({command!r}, {text}); }}")


def _wait_up(lab: Lab, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _UP_WITHIN_S
    request = urllib.request.Request(f"{lab.url}/api/status", headers={"Authorization": f"token {lab.token}"})
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the Jupyter server did not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)
