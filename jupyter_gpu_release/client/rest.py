"""The gateway's REST routes, for the command line and the line magics: one short-lived connection a question."""

from __future__ import annotations

from typing import Any, TypeVar

import httpx
import msgspec

from ..core.documents import Health, RunRow, RunsDocument, StatusDocument
from ..errors import AuthenticationError, GatewayUnavailableError, GpuReleaseError, from_code
from .discovery import Target

T = TypeVar("T")
_MEND = "is it running? `jupyter gpu status` tells, `jupyter gpu start` starts this machine's own"


class Rest:
    """Asks the gateway ``target``; every method raises :class:`GpuReleaseError` with what the gateway said.

    ``GatewayUnavailableError``: it does not answer within ``timeout_s``.
    """

    def __init__(self, target: Target, timeout_s: float = 10.0) -> None:
        self._target = target
        self._timeout_s = timeout_s

    def health(self) -> Health:
        """Whether it can take runs."""
        return self._ask("GET", "health", Health)

    def status(self) -> StatusDocument:
        """Who holds what, who waits."""
        return self._ask("GET", "status", StatusDocument)

    def runs(self, limit: int = 100) -> RunsDocument:
        """The runs, newest first, at most ``limit``."""
        return self._ask("GET", f"runs?limit={limit}", RunsDocument)

    def run(self, run: str) -> RunRow:
        """One run."""
        return self._ask("GET", f"runs/{run}", RunRow)

    def cancel(self, run: str) -> RunRow:
        """End a run: a queued one at once, a running one by an interrupt, then a kill."""
        return self._ask("POST", f"runs/{run}/cancel", RunRow)

    def _ask(self, method: str, path: str, kind: type[T]) -> T:
        answer = self._send(method, path)
        if answer.is_error:
            raise _refusal(answer, self._target.url)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.MsgspecError as error:
            raise GatewayUnavailableError(
                f"{self._target.url} answered with something else than expected ({error})",
                mend="`jupyter gpu doctor` compares the versions of client and gateway",
            ) from error

    def _send(self, method: str, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._target.token}"}
        try:
            # proxies of the environment are for gateways elsewhere
            with httpx.Client(timeout=self._timeout_s, trust_env=not self._target.is_loopback) as client:
                return client.request(method, f"{self._target.url}/v1/{path}", headers=headers)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise GatewayUnavailableError(
                f"the gateway {self._target.url} does not answer: {reason}", mend=_MEND
            ) from error


def _refusal(answer: httpx.Response, url: str) -> GpuReleaseError:
    try:
        facts: dict[str, Any] = msgspec.json.decode(answer.content)["error"]
        return from_code(facts["code"], facts["message"], facts.get("mend", ""))
    except (msgspec.DecodeError, KeyError, TypeError):
        pass
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        return AuthenticationError(f"the gateway {url} does not know this token", mend="check JUPYTER_GPU_TOKEN")
    return GatewayUnavailableError(f"{url} answered with HTTP {answer.status_code}: not a gateway?", mend=_MEND)
