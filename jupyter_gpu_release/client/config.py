"""``c.GpuRelease.…``: what configuration files say; the environment variables win over them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from traitlets import Bool, Dict, Enum, Float, List, Unicode
from traitlets.config import Config, Configurable
from traitlets.config.loader import ConfigFileNotFound, JSONFileConfigLoader, PyFileConfigLoader

from ..errors import GatewayUnavailableError, GpuReleaseError, OptionError
from ..options.definitions import Written, from_mapping, overlay, parse_settings
from ..options.run_options import build_options
from ..settings.setting import trait
from ..settings.table import RELEASE
from ..units import parse_bytes
from .discovery import Target, find_gateway

FILE_NAME = "jupyter_gpu_release_config"


class GpuRelease(Configurable):
    """Settings of ``%%gpu_train`` in a kernel or script, and of the gateway that a Jupyter server asks.

    Read from ``jupyter_gpu_release_config.py`` or ``.json`` in Jupyter's configuration folders
    (``jupyter --paths``), then from IPython's own configuration (``ipython_config.py``,
    ``ipython_kernel_config.py``), the latter winning.
    """

    url = Unicode(**trait(RELEASE["url"])).tag(config=True)
    token_file = Unicode(**trait(RELEASE["token_file"])).tag(config=True)
    ca_file = Unicode(**trait(RELEASE["ca_file"])).tag(config=True)
    store = Unicode(**trait(RELEASE["store"])).tag(config=True)
    auto_start = Enum(**trait(RELEASE["auto_start"])).tag(config=True)
    start_options = List(Unicode(), **trait(RELEASE["start_options"])).tag(config=True)
    defaults = Dict(**trait(RELEASE["defaults"])).tag(config=True)
    implicit_send_max = Unicode(**trait(RELEASE["implicit_send_max"])).tag(config=True)
    automatic = Bool(**trait(RELEASE["automatic"])).tag(config=True)
    user_tokens = Unicode(**trait(RELEASE["user_tokens"])).tag(config=True)
    poll_interval = Float(**trait(RELEASE["poll_interval"])).tag(config=True)
    max_backoff = Float(**trait(RELEASE["max_backoff"])).tag(config=True)


def load_settings(shell: Any, folders: Sequence[str | Path] | None = None) -> GpuRelease:
    """Read the configuration files for ``shell``; raises :class:`OptionError` naming a file that is faulty."""
    config = Config()
    for folder in reversed(_jupyter_folders() if folders is None else folders):
        for loader in (
            JSONFileConfigLoader(f"{FILE_NAME}.json", path=str(folder)),
            PyFileConfigLoader(f"{FILE_NAME}.py", path=str(folder)),
        ):
            config.merge(_read(loader))
    own = getattr(shell, "config", None)
    if own is not None:
        config.merge(own)
    try:
        settings = GpuRelease(config=config)
        build_options(from_mapping(settings.defaults))
    except GpuReleaseError as error:
        raise OptionError(f"c.GpuRelease.defaults: {error.message}", hint=error.hint) from error
    except Exception as error:
        raise OptionError(f"c.GpuRelease: {error}", hint="mend Jupyter's configuration file") from error
    parse_bytes(settings.implicit_send_max, option="c.GpuRelease.implicit_send_max")
    return settings


def find_target(settings: GpuRelease) -> Target | None:
    """Find the gateway named by the environment, else the configuration files, else this machine's connection file."""
    return find_gateway(
        url=unless_set("JUPYTER_GPU_URL", settings.url),
        token_file=unless_set("JUPYTER_GPU_TOKEN_FILE", unless_set("JUPYTER_GPU_TOKEN", settings.token_file)),
        store=unless_set("JUPYTER_GPU_STORE", settings.store),
        ca_file=unless_set("JUPYTER_GPU_CA_FILE", settings.ca_file),
    )


def check_may_start(settings: GpuRelease) -> None:
    """Raise :class:`GatewayUnavailableError` where no cluster is started for who needs one."""
    if settings.auto_start == "never":
        raise GatewayUnavailableError(
            "no cluster is running here, no gateway is configured, and auto_start is 'never'",
            hint="set JUPYTER_GPU_URL, or run `jupyter gpu start`",
        )


def start_own(settings: GpuRelease, progress: Callable[[str], None]) -> Target:
    """Start this machine's own cluster as the ``settings`` say; returns its gateway.

    Raises what :func:`.start_local_cluster` raises. ``progress`` gets each step's words.
    """
    from .autostart import start_local_cluster

    start_local_cluster(progress, options=settings.start_options)
    target = find_target(settings)
    if target is None:
        raise GatewayUnavailableError(
            "the local cluster was started but left no connection file", hint="run `jupyter gpu doctor`"
        )
    return target


def configured_target() -> Target | None:
    """Find the gateway that the notebooks of this environment talk to (:func:`find_target`), for who has no shell."""
    return find_target(load_settings(None))


def unless_set(variable: str, setting: str | None) -> str | None:
    """A file's setting, unless the environment says otherwise."""
    return None if os.environ.get(variable) else setting or None


def _jupyter_folders() -> Sequence[str | Path]:
    from jupyter_core.paths import jupyter_config_path

    return list(jupyter_config_path())


def _read(loader: JSONFileConfigLoader | PyFileConfigLoader) -> Config:
    try:
        return loader.load_config()
    except ConfigFileNotFound:
        return Config()
    except Exception as error:
        raise OptionError(
            f"{loader.full_filename} cannot be read: {type(error).__name__}: {error}", hint="mend or remove that file"
        ) from error


class NotebookDefaults:
    """The defaults of this notebook: the files' below, ``%gpu_config``'s above them."""

    def __init__(self) -> None:
        self._own: Written = {}

    def change(self, line: str, below: Written) -> None:
        """Take over ``gpus=2 memory=8GiB``; an empty value takes one back. Nothing changes when one is wrong."""
        given = parse_settings(line)
        wanted = dict(self._own)
        for name, values in given.items():
            if values == [""]:
                wanted.pop(name, None)
            else:
                wanted[name] = from_mapping({name: values}).get(name, [])
                if not wanted[name]:
                    del wanted[name]
        build_options(overlay(below, wanted))
        self._own = wanted

    def reset(self) -> None:
        """Forget what ``%gpu_config`` set."""
        self._own = {}

    @property
    def own(self) -> Written:
        """The settings made with ``%gpu_config``."""
        return dict(self._own)
