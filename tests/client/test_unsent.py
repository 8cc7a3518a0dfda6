"""Inputs on the store while their gateway is away: nobody's collection takes them for abandoned."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.store.graph_file import write_graph
from jupyter_gpu_release.store.run_contents import measure_folder
from jupyter_gpu_release.store.run_folders import create_run_folder
from jupyter_gpu_release.submission.request import Submission

RUN = "20260101-000000-00000001"


def test_inputs_are_touched_while_the_gateway_is_away(tmp_path: Path, until: Callable[..., None]) -> None:
    paths = create_run_folder(tmp_path, RUN)
    write_graph(paths.inputs, b"s", [], durable=False)
    for path in (paths.inputs, paths.files, paths.folder):
        os.utime(path, (1, 1))
    assert measure_folder(paths.folder).changed_at == 1
    request = RunRequest(RUN, "s", ResourceAsk(), b"")
    submission = Submission(request, None, paths)  # type: ignore[arg-type]
    session = GatewaySession(Target("http://127.0.0.1:9", "token"), "s")
    try:
        session.submit(request, while_unsent=submission.keep_inputs)
        until(lambda: measure_folder(paths.folder).changed_at > 1, "the inputs are touched")
    finally:
        session.close()
