"""What somebody asked of a cluster that turns out to run already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..client.home import Connection, HomePaths
from ..core.config import GatewayConfig
from ..core.resources import counted
from ..errors import ClusterError, ConflictError
from .plan import KeeperPlan, read_plans

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
            raise ConflictError(
                f"a cluster with {what} runs already", mend="to change that: `jupyter gpu stop`, then start it anew"
            )

    def _differences(self, running: Connection) -> Iterator[str]:
        real_or_not = None if self.gpus is None and self.simulated is None else self.simulated is not None
        kind = "simulated GPU" if running.simulated else "real GPU"
        if real_or_not is not None and running.embedded and real_or_not != running.simulated:
            yield f"{kind}s"
        if self.store is not None and Path(self.store).absolute() != Path(running.store):
            yield f"the store {running.store}"
        if not running.embedded:
            yield from self._other_place(running, _settings_of(running))
            return
        plan = next((plan for plan in read_plans() if plan.runtime == running.runtime), None)
        if plan is None:
            return
        if (self.simulated if self.gpus is None else self.gpus) not in (None, plan.gpus):
            yield counted(plan.gpus, kind)
        yield from self._other_place(running, plan)

    def _other_place(self, running: Connection, served: KeeperPlan | GatewayConfig) -> Iterator[str]:
        if self.host not in (DEFAULT_HOST, served.host):
            yield f"a gateway that listens on {served.host} alone"
        if self.port not in (0, served.port):
            yield f"its gateway at {running.url}"


def _settings_of(attached: Connection) -> GatewayConfig:
    """What the gateway was started with, beside its token."""
    home = HomePaths(Path(attached.token_file).parent)
    try:
        return msgspec.json.decode(home.gateway_config.read_bytes(), type=GatewayConfig)
    except (OSError, msgspec.MsgspecError) as error:
        raise ClusterError(
            f"cannot read what the running gateway was started with: {error}", mend="run `jupyter gpu stop` first"
        ) from error
