"""The gateway's REST interface for programs and the command line. Errors come back as our own."""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeVar

import httpx
import msgspec

from ..core.access_documents import TokenIssued, TokenRequest, TokenRevocation, TokensDocument
from ..core.cache import CacheAnswer, CacheQuestion, CacheUse
from ..core.collection import GcDocument
from ..core.documents import EventsPage, Health, NodeChecks, RunRow, RunsDocument, StatusDocument, WarmRow
from ..core.messages import RunView
from ..core.provenance import Lineage
from ..core.run import RunState
from ..errors import NoSuchRunError
from .answers import LOOPBACK, read_answer, safe_path
from .discovery import Target
from .unreachable import unreachable

T = TypeVar("T")
_MOST_RUNS = 10_000


class GatewayClient:
    """Each method is one request. Raises :class:`GatewayUnavailableError` when nobody answers, else what the gateway
    refuses with (:class:`AuthenticationError`, :class:`NoSuchRunError` …).
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 10.0, configured: bool = False) -> None:
        self.url = url.rstrip("/")
        self._configured = configured
        loopback = (httpx.URL(self.url).host or "") in LOOPBACK
        self._client = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=timeout_s, trust_env=not loopback,
            verify=self.url.startswith("https:"),  # reading all certificates takes 20 ms
        )  # fmt: skip

    @classmethod
    def of(cls, target: Target, *, timeout_s: float = 10.0) -> GatewayClient:
        """A client for a gateway that :func:`find_gateway` found."""
        return cls(target.url, target.token, timeout_s=timeout_s, configured=target.configured)

    def __enter__(self) -> GatewayClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def health(self) -> Health:
        """Whether the gateway can take runs now."""
        return self._get("/v1/health", Health)

    def checks(self) -> NodeChecks:
        """Each node probed now, as ``doctor`` wants it."""
        return self._get("/v1/checks", NodeChecks)

    def status(self) -> StatusDocument:
        """Who holds what, who waits and why."""
        return self._get("/v1/status", StatusDocument)

    def runs(self, limit: int = 100, *, mine: bool = False, brief: bool = False) -> RunsDocument:
        """The newest runs first, everybody's or the caller's own; ``brief``: without what came out of them."""
        asked = {"mine": "true"} if mine else {}
        return self._get("/v1/runs", RunsDocument, limit=limit, **asked | ({"brief": "true"} if brief else {}))

    def run(self, run: str) -> RunRow:
        """One run."""
        return self._get(f"/v1/runs/{safe_path(run)}", RunRow)

    def view(self, run: str, *, session: str = "") -> RunView:
        """One run with its outcome: the values' digest, and small ones whole (for its owner).

        ``session``: the kernel that loads them; they are not collected while it is there.
        """
        return self._get(f"/v1/runs/{safe_path(run)}/outcome", RunView, **({"session": session} if session else {}))

    def newest(self, *, live: bool = False) -> RunRow:
        """What ``last`` means: the caller's newest run; ``live``: the newest that is not over. Raises without one."""
        runs = self.runs(_MOST_RUNS if live else 1, mine=True, brief=live).runs
        found = next((run for run in runs if not (live and RunState.of(run.state).is_terminal)), None)
        if found is None and runs:
            raise NoSuchRunError("no run is under way: all are over", mend="`jupyter gpu runs` (%gpu_runs) lists them")
        if found is None:
            raise NoSuchRunError("there is no run yet", mend="run a %%gpu_train cell first")
        return found

    def cancel(self, run: str, *, kill: bool = False) -> RunRow:
        """End a run: an interrupt first, the second time (or with ``kill``) a kill."""
        parameters = {"kill": "true"} if kill else {}
        return self._ask("POST", f"/v1/runs/{safe_path(run)}/cancel", RunRow, parameters)

    def release_lease(self, lease: str) -> WarmRow:
        """Give back GPUs that are kept warm after run ``lease``; returns when they are free."""
        return self._ask("POST", f"/v1/leases/{safe_path(lease)}/release", WarmRow, {})

    def pin(self, run: str, *, pinned: bool = True) -> RunRow:
        """Keep a run's results for good, or no longer."""
        return self._ask("POST", f"/v1/runs/{safe_path(run)}/{'pin' if pinned else 'unpin'}", RunRow, {})

    def import_run(self, name: str, exported_by: str) -> RunRow:
        """Make a run of what was unpacked on the store as ``name``."""
        return self._ask("POST", f"/v1/imports/{safe_path(name)}", RunRow, {"exported_by": exported_by})

    def collect(self, *, dry_run: bool = False, **limits: int) -> GcDocument:
        """Collect old results; ``limits``: ``older_than_s``, ``keep``, ``quota_bytes`` in place of the settings'."""
        return self._ask("POST", "/v1/gc", GcDocument, {"dry_run": str(dry_run).lower(), **limits})

    def events(self, run: str, after: int = 0) -> EventsPage:
        """A page of recorded output."""
        return self._get(f"/v1/runs/{safe_path(run)}/events", EventsPage, after=after)

    def create_token(self, asked: TokenRequest) -> TokenIssued:
        """A new token with its secret; for admins, as the next two."""
        return self._ask("POST", "/v1/tokens", TokenIssued, {}, asked)

    def tokens(self) -> TokensDocument:
        """All tokens, without secrets."""
        return self._get("/v1/tokens", TokensDocument)

    def revoke_tokens(self, which: TokenRevocation) -> TokensDocument:
        """Refuse a token (or all of a user) from now on; returns those that were revoked."""
        return self._ask("POST", "/v1/tokens/revoke", TokensDocument, {}, which)

    def lineage(self, run: str) -> Lineage:
        """What a run was made from, and what was made from it."""
        return self._get(f"/v1/runs/{safe_path(run)}/lineage", Lineage)

    def cached(self, question: CacheQuestion) -> CacheAnswer:
        """Runs of this user with a key of ``--cache``."""
        return self._ask("POST", "/v1/cache", CacheAnswer, {}, question)

    def reused(self, run: str, use: CacheUse) -> RunRow:
        """Tell that a run's results were bound again."""
        return self._ask("POST", f"/v1/runs/{safe_path(run)}/reused", RunRow, {}, use)

    def document(self, path: str) -> dict[str, Any]:
        """Any JSON document as it is (``/openapi.json``)."""
        return self._get(path, dict)

    def _get(self, path: str, kind: type[T], **parameters: Any) -> T:
        return self._ask("GET", path, kind, parameters)

    def _ask(
        self, method: str, path: str, kind: type[T], parameters: dict[str, Any], body: msgspec.Struct | None = None
    ) -> T:
        content = None if body is None else msgspec.json.encode(body)
        try:
            response = self._client.request(method, path, params=parameters, content=content)
        except httpx.HTTPError as error:
            raise unreachable(self.url, error, configured=self._configured) from error
        return read_answer(self.url, path, response, kind, configured=self._configured)
