"""A cluster of one machine starts its first fork server beside Ray, and the node's agent takes it over."""

from __future__ import annotations

from pathlib import Path

import pytest
from embedded_bed import members

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.launch_spec import read_plans
from jupyter_gpu_release.local_cluster.ray_head import read_import
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded
from jupyter_gpu_release.protocol.node import early_server_path

pytestmark = pytest.mark.thorough


def test_the_first_fork_server_is_the_daemons_child_and_the_agents_own(own_home: HomePaths) -> None:
    told: list[str] = []
    connection = start_embedded(home=own_home, asked=StartOptions(simulated=1), progress=told.append).connection
    servers = [
        process
        for process in members(connection)
        if "jupyter_gpu_release.node.fork_server" in process.cmdline() and '"early"' in process.cmdline()[-1]
    ]
    first = [process for process in servers if process.ppid() == connection.daemon_pid]
    assert len(first) == 1, "the agent did not take it: its log, or Ray's of the agent, says why"
    assert not list(Path(connection.runtime).glob("early-*.ctl")), "nobody has claimed it"
    assert not list(Path(connection.runtime).glob("fs-*.sock")), "the agent has started another one"
    assert any(text.startswith("starting Ray") and "libraries are loaded meanwhile" in text for text in told)
    plan = next(plan for plan in read_plans(own_home))
    news = Path(early_server_path(plan.runtime, plan.node) + ".news")
    assert read_import(plan) == "", "all are loaded when the cluster is ready"
    news.write_text('{"importing": "torch._dynamo"}')
    assert read_import(plan) == "torch"
