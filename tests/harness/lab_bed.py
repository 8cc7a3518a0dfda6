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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright
from ports import free_port

_CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
]
_UP_WITHIN_S = 120.0
#: jupyter-collaboration, which only a lab that asks for it sees (`make test-all` installs it there)
COLLABORATION = Path(sys.prefix) / "collaboration"
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


def collaborating() -> dict[str, str]:
    """The environment of a lab whose pages share documents (real-time collaboration)."""
    return {
        "PYTHONPATH": str(COLLABORATION),
        "JUPYTER_PATH": str(COLLABORATION / "share" / "jupyter"),
        "JUPYTER_CONFIG_PATH": str(COLLABORATION / "etc" / "jupyter"),
    }


class LabProcess:
    """The server's process: it can end and start again, with the same address and token."""

    def __init__(self, lab: Lab, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.lab = lab
        self._command, self._environment, self._log = command, environment, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, cwd=self.lab.root
            )
        self._wait_up(self._process)

    def stop(self) -> None:
        """End it as ^C does: it shuts its kernels down."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _wait_up(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _UP_WITHIN_S
        lab = self.lab
        request = urllib.request.Request(f"{lab.url}/api/status", headers={"Authorization": f"token {lab.token}"})
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5):
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the Jupyter server did not start:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.1)


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
    python: str = sys.executable,
) -> Iterator[Lab]:
    """A server below ``folder`` until the block ends.

    ``config``: more lines of its configuration file. ``settings``: what the user has set for the sidebar. ``python``:
    of its environment, and of its kernels'.
    """
    with lab_process(folder, environment=environment, config=config, settings=settings, python=python) as process:
        yield process.lab


@contextlib.contextmanager
def lab_process(
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    config: str = "",
    settings: Mapping[str, object] | None = None,
    python: str = sys.executable,
) -> Iterator[LabProcess]:
    """The same, with its process."""
    root = folder / "notebooks"
    root.mkdir(parents=True, exist_ok=True)
    token, port = secrets.token_hex(16), free_port()
    file = folder / "config" / "jupyter_server_config.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(_CONFIG.format(token=token, root=str(root), port=port) + config)
    # or the first page asks
    _set(folder / "settings", "@jupyterlab/apputils-extension/notification", {"fetchNews": "false"})
    # a kernel on a busy machine answers late, and JupyterLab drops that by default
    _set(folder / "settings", "@jupyterlab/completer-extension/manager", {"providerTimeout": 60_000})
    _set(folder / "settings", "jupyter-gpu-release/plugin", settings or {})
    names = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "JUPYTER_GPU_HOME": "gpu",
    }
    own = {name: str(folder / path) for name, path in names.items()}
    command = [python, "-m", "jupyterlab", f"--config={file}"]  # `jupyter lab` would take the first one of PATH
    lab = Lab(f"http://127.0.0.1:{port}", token, root)
    process = LabProcess(lab, command, {**os.environ, **own, **(environment or {})}, folder / "server.log")
    try:
        process.start()
        yield process
    finally:
        process.stop()


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
