"""UseHistory: how the GPUs of runs are used, from the statuses of the cluster, while the runs hold them."""

from __future__ import annotations

from msgspec.structs import replace

from ...host.use_series import UseSeries
from ...protocol.rest import GpuRow, StatusDocument
from ...protocol.runs import GpuUse

#: runs that are remembered, those that end included
_MOST_RUNS = 300
_SPAN_S = 2.0


class UseHistory:
    """A bounded series for each run that holds GPUs; those that ended first are forgotten first."""

    def __init__(self) -> None:
        self._runs: dict[str, UseSeries] = {}

    def record(self, at_s: float, status: StatusDocument) -> None:
        """Take one status of the cluster."""
        held: dict[str, list[GpuRow]] = {}
        for gpu in (gpu for node in status.nodes for gpu in node.gpus if gpu.state == "running"):
            for has in gpu.holders:  # what each uses of the memory of a shared one is not known here
                held.setdefault(has.run, []).append(replace(gpu, memory_bytes=0) if gpu.parts else gpu)
        for run, gpus in held.items():
            self._add(run, at_s, gpus)
        most = max(_MOST_RUNS, len(held))
        for run in list(self._runs)[:-most]:
            del self._runs[run]

    def _add(self, run: str, at_s: float, gpus: list[GpuRow]) -> None:
        series = self._runs.pop(run, None)
        if series is None and any(gpu.utilization is not None for gpu in gpus):
            series = UseSeries(at_s, _SPAN_S)
        if series is not None:
            self._runs[run] = series  # behind all that are held no longer
            series.add_gpus(at_s, gpus)

    def of(self, run: str) -> GpuUse | None:
        """The use of a run's GPUs as far as it was seen; None: never."""
        series = self._runs.get(run)
        if series is None:
            return None
        return GpuUse(utilization=series.utilization, memory=series.memory, span_s=series.span_s, since=series.since_s)
