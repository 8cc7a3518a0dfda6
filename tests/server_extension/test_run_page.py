"""A run's page shows how its GPUs were used: as its node has measured it, until then as this server has seen it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.errors import ForbiddenError
from jupyter_gpu_release.gateway.runs.manifests import manifest_of
from jupyter_gpu_release.protocol.rest import GatewayFacts, GpuCounts, GpuRow, NodeRow, StatusDocument
from jupyter_gpu_release.protocol.runs import GpuUse, Outcome, ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.server_extension.monitoring.use_history import UseHistory
from jupyter_gpu_release.server_extension.runs.page import RunRecords
from jupyter_gpu_release.store.run_folders import create_run_folder, write_manifest

_RUN = "20261123-010203-abcdef01"
_MEAN = GpuUse(mean_utilization=0.5)
_MEASURED = GpuUse(utilization=[0, 90], memory=[1, 2], span_s=0.5, since=1000.5)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("is_seen", "measured", "shown"),
    [
        (False, None, None),
        (False, _MEAN, _MEAN),
        (False, _MEASURED, _MEASURED),
        (True, None, [70]),
        (True, _MEAN, [70]),
        (True, _MEASURED, _MEASURED),
    ],
)
async def test_what_its_node_has_measured_comes_first(
    is_seen: bool, measured: GpuUse | None, shown: GpuUse | list[int] | None, tmp_path: Path
) -> None:
    outcome = Outcome("ok", gpu_use=measured) if measured is not None else None
    state = "running" if outcome is None else "succeeded"
    view = RunView(_RUN, "ada", state, gpus=1, submitted_at=2000.0, granted_at=2001.0)
    manifest = manifest_of(view, outcome, RunRequest(_RUN, "s", ResourceAsk(gpus=1), b""))
    write_manifest(create_run_folder(tmp_path, _RUN), manifest, durable=False)
    line: Any = SimpleNamespace(
        is_there=lambda: False, store=str(tmp_path), is_of_one_user=False, user="ada", use=UseHistory()
    )
    if is_seen:
        gpu = GpuRow("0", "GPU-0", "H100", 0, 0, 0.7, "running", user="ada", run=_RUN)
        rows, counts = [NodeRow("n", "gpu-01", [gpu])], GpuCounts(1, 1, 0, 0)
        line.use.record(2002.0, StatusDocument(1, False, GatewayFacts("https://g", "0"), counts, rows, [], []))
    use = (await RunRecords().page(line, _RUN)).gpu_use
    assert (use.utilization if use is not None and isinstance(shown, list) else use) == shown


@pytest.mark.asyncio
@pytest.mark.parametrize("user", ["ada", "eve"])
async def test_files_are_opened_for_their_owner_alone(user: str, tmp_path: Path) -> None:
    view = RunView(_RUN, "ada", "succeeded", gpus=1, submitted_at=2000.0)
    (create_run_folder(tmp_path, _RUN).files / "a.txt").write_text("hers")

    async def ask(*_: object) -> RunView:
        return view

    async def learn_store() -> None:
        pass

    line: Any = SimpleNamespace(
        is_there=lambda: True, ask=ask, learn_store=learn_store, store=str(tmp_path), is_of_one_user=False, user=user
    )
    if user == "ada":
        with await RunRecords().open_file(line, _RUN, "a.txt") as file:
            assert file.read() == b"hers"
    else:
        with pytest.raises(ForbiddenError, match="are ada's"):
            await RunRecords().open_file(line, _RUN, "a.txt")
