"""``SweepTrial``: one trial of a sweep, its run and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import RunFailedError
from ..serialization.exceptions import error_text

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

    from ..protocol.runs import RunView
    from .future import RunFuture

RUNNING, COMPLETE, PRUNED, FAILED = "running", "complete", "pruned", "failed"
#: of the table of trials, besides metric and parameters
COLUMNS = ("trial", "state", "steps", "seconds", "gpu_seconds", "run", "error")


@dataclass
class SweepTrial:
    """Attributes: ``number`` (of the study), ``parameters``, ``value`` of the metric, ``state``, ``run`` (its id)."""

    number: int
    parameters: Mapping[str, Any]
    asked: BaseTrial = field(repr=False)
    future: RunFuture[Any] = field(repr=False)
    state: str = RUNNING
    value: float | None = None
    #: step → value, as the trial has reported them
    steps: dict[int, float] = field(default_factory=dict, repr=False)
    error: str = ""
    #: when it is killed, if it has not ended by then
    killed_at: float = field(default=math.inf, repr=False)

    @property
    def run(self) -> str:
        """The id of its run."""
        return self.future.id

    def result(self) -> Any:
        """The value that the function returned; large arrays are mapped from the store."""
        return self.future.result()

    @property
    def whole_view(self) -> RunView:
        """The view of its run, which is over, with what came out of it."""
        self.future.exception()  # of a trial that was kept that is asked for now
        return self.future.view

    @property
    def word(self) -> str:
        """Its state; of one that is not over, the run's."""
        return self.future.status if self.state == RUNNING else self.state

    @property
    def seconds(self) -> float | None:
        """Time that it has held its GPUs; None: it is not over, or had none."""
        view = self.future.view
        return view.gone_at - view.granted_at if view.gone_at and view.granted_at else None

    @property
    def gpu_seconds(self) -> float:
        """The same, for each of its GPUs."""
        return (self.seconds or 0.0) * self.future.view.gpus

    def row(self, metric: str) -> dict[str, Any]:
        """Its row in the table of trials."""
        return {
            "trial": self.number,
            "state": self.state,
            metric: self.value,
            **{f"params_{name}": value for name, value in self.parameters.items()},
            "steps": len(self.steps),
            "seconds": self.seconds,
            "gpu_seconds": None if self.seconds is None else self.gpu_seconds,
            "run": self.run,
            "error": self.error,
        }


def metric_of(returned: Any, metric: str, title: str) -> float:
    """The metric in what ``title`` returned; raises :class:`RunFailedError` where there is none."""
    try:
        if isinstance(returned, Mapping):
            if metric not in returned:
                names = ", ".join(map(str, returned)) or "nothing"
                raise RunFailedError(
                    f"{title} returned no {metric!r} but {names}", hint="give it that name, or name another metric"
                )
            returned = returned[metric]
        value = float(returned)
    except RunFailedError:
        raise
    except BaseException as error:  # noqa: BLE001 - the user's own __float__, on the sweep's thread
        raise RunFailedError(
            f"{title} returned a {type(returned).__name__} for {metric!r}, no number",
            hint=f"{metric!r} has to be a number; {type(error).__name__}: {error_text(error)}",
        ) from None
    if value != value:
        raise RunFailedError(f"{title} returned NaN for {metric!r}", hint="such a trial counts as failed")
    return value
