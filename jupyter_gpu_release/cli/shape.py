"""What somebody asked of a cluster that turns out to run already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..client.home import Connection
from ..core.resources import counted
from ..errors import ConflictError
from .plan import read_plans

DEFAULT_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Asked:
    """The options of ``start``; None, :data:`DEFAULT_HOST` and port 0 leave it open."""

    gpus: int | None = None
    simulated: int | None = None
    store: str | None = None
    host: str = DEFAULT_HOST
    port: int = 0

    def refuse_another(self, running: Connection) -> None:
        """Raise :class:`ConflictError` when the running cluster is not what was asked for in so many words."""
        for what in self._differences(running):
            raise ConflictError(f"a cluster with {what} runs already", mend="run `jupyter gpu stop` first")

    def _differences(self, running: Connection) -> Iterator[str]:
        real_or_not = None if self.gpus is None and self.simulated is None else self.simulated is not None
        kind = "simulated GPU" if running.simulated else "real GPU"
        if real_or_not is not None and running.embedded and real_or_not != running.simulated:
            yield f"{kind}s"
        if self.store is not None and Path(self.store).absolute() != Path(running.store):
            yield f"the store {running.store}"
        plan = next((plan for plan in read_plans() if plan.runtime == running.runtime), None)
        if plan is None:
            return
        if (self.simulated if self.gpus is None else self.gpus) not in (None, plan.gpus):
            yield counted(plan.gpus, kind)
        if self.host not in (DEFAULT_HOST, plan.host):
            yield f"a gateway that listens on {plan.host} alone"
        if self.port not in (0, plan.port):
            yield f"its gateway at {running.url}"
