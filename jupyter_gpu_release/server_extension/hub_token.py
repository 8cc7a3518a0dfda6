"""The token for the gateway of a JupyterHub's server: asked of the Hub's service, kept in a file, renewed in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import msgspec
from traitlets.config import LoggingConfigurable

from ..client.discovery import HUB_SERVICE
from ..client.home import write_secret
from ..client.rest import LOOPBACK, read_answer
from ..errors import GatewayUnavailableError, GpuReleaseError
from .models import Problem

_TIMEOUT_S = 30.0
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 60.0


class _Answer(msgspec.Struct, frozen=True):
    """The service's answer (:mod:`jupyter_gpu_release.hub.service`)."""

    token: str
    expires_s: float


class HubToken(LoggingConfigurable):
    """Keeps the file that :envvar:`JUPYTER_GPU_TOKEN_FILE` names for this server, its kernels and its terminals."""

    def __init__(
        self, runtime_dir: str, on_renewed: Callable[[], None], parent: LoggingConfigurable, *, has_other: bool = False
    ) -> None:
        """``on_renewed`` is called when the file holds another token; ``has_other``: a file is configured."""
        super().__init__(parent=parent)
        self._service = os.environ.get(HUB_SERVICE, "")
        self._own = os.environ.get("JUPYTERHUB_API_TOKEN", "")
        self._on_renewed = on_renewed
        self._hurry = asyncio.Event()
        #: set when the first try is over
        self.tried = asyncio.Event()
        self._backoff_s = _FIRST_BACKOFF_S
        self._error: GpuReleaseError | None = None
        server = quote(os.environ.get("JUPYTERHUB_SERVER_NAME", ""), safe="")
        self._file = Path(runtime_dir) / f"jupyter_gpu_token-{server}"
        #: another token that somebody has configured goes before the Hub's
        has_other = has_other or any(map(os.environ.get, ("JUPYTER_GPU_TOKEN", "JUPYTER_GPU_TOKEN_FILE")))
        self.is_wanted = bool(self._service and self._own and not has_other)
        if self.is_wanted:
            self._file.unlink(missing_ok=True)
            os.environ["JUPYTER_GPU_TOKEN_FILE"] = str(self._file)  # kernels and terminals inherit it

    async def run(self) -> None:
        """Keep the token good until cancelled."""
        try:
            while True:
                pause_s = await self._renew()
                self.tried.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), pause_s)
                self._hurry.clear()
        finally:
            self._file.unlink(missing_ok=True)

    def renew_now(self) -> None:
        """Ask for another one: the gateway does not take this one any more."""
        if self._error is None:
            self._hurry.set()

    def problems(self) -> list[Problem]:
        """Say why there is no token, if there is none."""
        return [Problem("JupyterHub", self._error.message, self._error.hint)] if self._error is not None else []

    async def _renew(self) -> float:
        """Return the seconds until the next time."""
        try:
            answer = await self._ask()
            await asyncio.to_thread(write_secret, self._file, answer.token)
        except GpuReleaseError as error:
            if self._error is None:
                self.log.warning("GPU token: %s (%s)", error.message, error.hint)
            self._error = error
            self._backoff_s = min(self._backoff_s * 2, _LONGEST_BACKOFF_S)
            return self._backoff_s * random.uniform(0.8, 1.0)
        self._error, self._backoff_s = None, _FIRST_BACKOFF_S
        self._on_renewed()
        return answer.expires_s / 2

    async def _ask(self) -> _Answer:
        own = {"Authorization": f"token {self._own}"}
        trust_env = urlsplit(self._service).hostname not in LOOPBACK
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=trust_env) as client:
                response = await client.post(self._service, headers=own)
        except httpx.HTTPError as error:
            raise GatewayUnavailableError(
                f"the Hub's service for GPU tokens does not answer at {self._service}: {error or type(error).__name__}",
                hint="ask whoever runs this JupyterHub (hand_out_tokens in its configuration)",
            ) from error
        return read_answer(self._service, "", response, _Answer, configured=True)
