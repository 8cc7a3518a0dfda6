"""The file of ``start --slurm``, as the pages have it and as it must not be."""

from __future__ import annotations

import re
import socket
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from doc_blocks import Block, blocks_in

from jupyter_gpu_release.cli.parser import parse
from jupyter_gpu_release.errors import ClusterError, OptionError
from jupyter_gpu_release.host.slurm_answers import SlurmJob
from jupyter_gpu_release.local_cluster import slurm_pool
from jupyter_gpu_release.local_cluster.slurm_pool import end_jobs, head_address, own_address, read_pool
from jupyter_gpu_release.protocol.config import SlurmPool


@pytest.mark.parametrize("block", blocks_in("start/slurm.md", "yaml") + blocks_in("operate/slurm.md", "yaml"), ids=str)
def test_the_files_of_the_pages_are_right(block: Block, tmp_path: Path) -> None:
    (tmp_path / "pool.yml").write_text(block.text)
    assert read_pool(str(tmp_path / "pool.yml")).partition == "gpu"


@pytest.mark.parametrize("block", blocks_in("start/slurm.md", "") + blocks_in("operate/slurm.md", ""), ids=str)
def test_the_commands_of_the_pages_are_right(block: Block) -> None:
    (command,) = block.commands()
    assert parse(command.split()[2:]).slurm == "pool.yml"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_nodes: 1\nmax_node: 3\n", "line 2: max_node: there is no such field"),
        ("max_nodes: many\n", "line 1: max_nodes: expected a whole number, it is a text"),
        ("max_nodes: 0\n", "line 1: max_nodes: expected a whole number >= 1"),
        ("partition: gpu\n", "line 1: the field max_nodes is missing"),
        ("[1, 2]\n", "expected a table, it is a list"),
        ("max_nodes: [", "line 1: "),
        ("max_nodes: 1\nsbatch: [--output=x]\n", "--output=x is set by the pool itself"),
        ("max_nodes: 1\nwalltime: 1s\n", "walltime 1s is below 5 minutes"),
        ("max_nodes: 1\nwalltime: 1x\n", "walltime 1x: not a duration"),
        (
            "max_nodes: 1\nwalltime: 12:00:00\n",
            "line 2: walltime: expected a text, it is a whole number",
        ),  # as Slurm has it
        ("max_nodes: 1\nhead_grace: 5s\n", "head_grace 5s is below 1 minute"),
    ],
)
def test_a_mistake_is_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "pool.yml").write_text(text)
    with pytest.raises(OptionError, match=re.escape(says)) as caught:
        read_pool(str(tmp_path / "pool.yml"))
    assert str(tmp_path / "pool.yml") in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("address", ["192.0.2.7", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_refused(address: str) -> None:
    with pytest.raises(OptionError, match=f"--slurm: address: {address}"):
        head_address(SlurmPool(max_nodes=1, address=address), print)


def test_a_guessed_address_is_none_of_the_loopback_or_of_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, address = SimpleNamespace(isup=True), partial(SimpleNamespace, family=socket.AF_INET)
    found = {"lo": "127.0.0.1", "docker0": "172.17.0.1", "virbr0": "192.168.122.1", "eth1": "10.0.0.5"}
    monkeypatch.setattr(psutil, "net_if_stats", lambda: dict.fromkeys(found, facts))
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {name: [address(address=at)] for name, at in found.items()})
    assert own_address() == "10.0.0.5"


def test_who_reaches_the_head_is_said() -> None:
    said: list[str] = []
    assert head_address(SlurmPool(max_nodes=1, address="127.0.0.1"), said.append) == "127.0.0.1"
    assert "no other machine reaches it" in said[0]


class _Queue:
    """Slurm with a job that ends slowly, or that answers nothing."""

    def __init__(self, *states: str) -> None:
        self.states, self.cancelled = list(states), 0

    def jobs(self, name: str) -> list[SlurmJob]:
        if not self.states:
            raise ClusterError("slurm_load_jobs error", hint="none")
        return [SlurmJob("7", self.states.pop(0))]

    def cancel(self, jobs: list[str]) -> None:
        self.cancelled += 1


def test_jobs_are_ended_once_and_what_is_completing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, said = _Queue("RUNNING", "RUNNING", "COMPLETING"), list[str]()
    monkeypatch.setattr(slurm_pool, "Slurm", lambda: queue)
    end_jobs("cafe", said.append)
    assert (said, queue.cancelled) == (["ending Slurm jobs 7"], 1)
    end_jobs("cafe", said.append)
    assert "could not be ended: slurm_load_jobs error" in said[1]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--slurm"):
        read_pool(str(tmp_path / "none.yml"))
