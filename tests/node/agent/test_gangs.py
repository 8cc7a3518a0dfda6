"""Gangs on one node through the real fork server: their environment, meeting, failing, hanging, gathering."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from node_bed import Node, said

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.protocol.node import GangOrder

UntilTrue = Callable[[Callable[[], object], str], None]
TWO: dict[str, Any] = {"ranks": 2, "gpu_ids": ["0", "1"]}


def test_parameter_servers_serve_until_the_ranks_have_ended(node: Node) -> None:
    source = (
        "import json, os, time\nimport jupyter_gpu_release as gpu_release\n"
        "print(os.environ['TF_CONFIG'])\n"
        "print(json.dumps([os.environ.get('RANK'), os.environ['CUDA_VISIBLE_DEVICES'], gpu_release.ranks.role]))\n"
        "serving = gpu_release.run_dir / f'{gpu_release.ranks.role}-{gpu_release.ranks.rank}'\n"
        "serving.touch()\nif gpu_release.ranks.role != 'rank':\n    time.sleep(1000)\n"
        "while len(list(gpu_release.run_dir.iterdir())) < 5:\n    time.sleep(0.01)"
    )
    run = node.run(source, gang=GangOrder(ps=2, evaluator=True), **TWO)
    assert (run.outcome.status, run.outcome.error) == ("ok", None)
    lines = {rank: text.splitlines() for rank, text in said(run).items()}
    configs = [json.loads(lines[index][0]) for index in range(5)]
    cluster = configs[0]["cluster"]
    assert all(config["cluster"] == cluster for config in configs)
    assert {kind: len(addresses) for kind, addresses in cluster.items()} == {"chief": 1, "worker": 1, "ps": 2}
    assert len({address for addresses in cluster.values() for address in addresses}) == 4
    tasks = [(config["task"]["type"], config["task"]["index"]) for config in configs]
    assert tasks == [("chief", 0), ("worker", 0), ("ps", 0), ("ps", 1), ("evaluator", 0)]
    assert json.loads(lines[1][1]) == ["1", "1", "rank"]
    assert json.loads(lines[3][1]) == [None, "", "ps"]
    assert {event.data.get("who") for event in run.events if event.data.get("rank") == 3} == {"ps 1"}


def test_a_rank_that_exits_well_has_ended_well(node: Node) -> None:
    """As under torchrun; the others go on."""
    source = (
        "import sys, time\nfrom jupyter_gpu_release import ranks, run_dir\n"
        "if ranks.rank == 1:\n    (run_dir / 'leaves').touch()\n    sys.exit({code})\n"
        "while not (run_dir / 'leaves').exists():\n    time.sleep(0.01)\ntime.sleep(0.5)\nfinal = 'saved'"
    )
    for code in ("", "0"):
        run = node.run(source.format(code=code), out=["final"], **TWO)
        assert (run.outcome.status, run.outcome.error) == ("ok", None)
        assert [value.name for value in run.outcome.results] == ["final"]
    failed = node.run(source.format(code="3"), **TWO)
    assert failed.outcome.error is not None
    assert failed.outcome.error.ename == "SystemExit"


def test_one_rank_that_was_asked_for_is_a_gang_of_one(node: Node) -> None:
    """As with torchrun: the same cell runs on one GPU and on eight."""
    source = (
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "total = torch.ones(1)\ndist.all_reduce(total)\nprint(dist.get_world_size(), total.item())\n"
        "dist.destroy_process_group()"
    )
    run = node.run(source, gang=GangOrder(is_gang=True))
    assert run.outcome.error is None, run.outcome.error
    assert said(run) == {0: "1 1.0\n"}
    alone = node.run("import os; print('RANK' in os.environ, 'TF_CONFIG' in os.environ)")
    assert said(alone) == {0: "False False\n"}


def test_ranks_meet_and_wait_for_each_other(node: Node) -> None:
    source = (
        "import time\nfrom jupyter_gpu_release import ranks\n"
        "seed = ranks.broadcast({'seed': 7} if ranks.rank == 1 else None, src=1)\n"
        "class Mine:\n    pass\n"
        "kind = type(ranks.broadcast(Mine() if ranks.rank == 0 else None)).__name__\n"
        "if ranks.rank == 0:\n    open('late', 'w').write('x')\n"
        "ranks.barrier(timeout=20)\n"
        "import os; print(seed, kind, os.path.exists('late'), ranks)"
    )
    run = node.run(source, ranks=3, gpu_ids=["0", "1", "2"])
    assert run.outcome.error is None
    text = "{'seed': 7} Mine True rank %d of 3, node 0 of 1\n"
    assert said(run) == {rank: text % rank for rank in range(3)}


_TWO_THREADS = (
    "from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait\n"
    "if ranks.rank == 0:\n    time.sleep(60)\n"
    "calls = [ThreadPoolExecutor().submit(ranks.barrier) for _ in range(2)]\n"
    "wait(calls, return_when=FIRST_EXCEPTION).done.pop().result()"
)


@pytest.mark.parametrize(
    ("cell", "kind", "words"),
    [
        ("ranks.barrier() if ranks.rank else None", "RankError", "rank 0 has ended and does not come to barrier()"),
        ("ranks.broadcast(1) if ranks.rank else ranks.barrier()", "RankError", "must make the same calls"),
        (
            "ranks.barrier(0.1) if ranks.rank else time.sleep(60)",
            "TimeoutError",
            "rank 0 did not come to barrier() within 0.1 s",
        ),
        ("ranks.broadcast(open('/dev/null') if not ranks.rank else 0)", "RankError", "cannot be sent"),
        ("ranks.broadcast(src=2)", "RankError", "the ranks are 0 to 1"),
        ("ranks.barrier(timeout='soon')", "OptionError", "timeout soon: not a duration"),
        ("ranks.barrier(timeout='100ms') if ranks.rank else time.sleep(60)", "TimeoutError", "within 0.1 s"),
        (_TWO_THREADS, "RankError", "barrier(): another thread of this rank is in such a call"),
    ],
)
def test_meetings_that_cannot_be_say_why(node: Node, cell: str, kind: str, words: str) -> None:
    outcome = node.run(f"import time\nfrom jupyter_gpu_release import ranks\n{cell}", **TWO).outcome
    assert outcome.error is not None
    assert (outcome.error.ename, words in outcome.error.evalue) == (kind, True), outcome.error.evalue
    assert "jupyter_gpu_release/" not in "".join(outcome.error.traceback)


def test_an_interrupt_ends_a_barrier_and_a_gang_of_one_meets_at_once(node: Node) -> None:
    alone = node.run("from jupyter_gpu_release import ranks\nranks.barrier()\nprint(ranks.broadcast([1]), ranks.size)")
    assert alone.text() == "[1] 1\n"
    run = node.start(
        "from jupyter_gpu_release import ranks\nimport time\nkept = 5\nprint('go')\n"
        "ranks.barrier() if ranks.rank == 0 else time.sleep(1000)",
        **TWO,
    )
    run.wait_for(lambda run: len(said(run)) == 2)
    run.signal("interrupt")
    outcome = run.wait()
    assert outcome.status == "interrupted"
    assert "kept" in [value.name for value in outcome.results]


_COLLECTIVE = (
    "import os, time, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
    "kept = torch.ones(3)\ndist.all_reduce(kept)\nprint(f'go {os.getpid()}')\n"
)


def test_a_rank_killed_inside_a_collective_is_the_reason_and_frees_the_others(node: Node) -> None:
    run = node.start(
        _COLLECTIVE + "if dist.get_rank() == 0:\n    dist.all_reduce(torch.ones(1))\ntime.sleep(1000)", **TWO
    )
    run.wait_for(lambda run: len(said(run)) == 2)
    pids = [int(text.split()[1]) for text in said(run).values()]
    os.kill(int(said(run)[1].split()[1]), signal.SIGKILL)
    outcome = run.wait()
    assert outcome.error is not None
    assert outcome.error.evalue.startswith(f"rank 1 on {socket.gethostname()}: the cell's process was killed")
    assert "kept" in [value.name for value in outcome.results]
    assert all(map(process_control.is_gone, pids))


@pytest.mark.parametrize("limit", [None, 1.0])
def test_an_end_inside_a_collective_frees_everything_and_keeps_rank_0s_names(node: Node, limit: float | None) -> None:
    """No rank reacts, for all are in C; the others' end breaks what rank 0 waits in."""
    stuck = "dist.all_reduce(torch.ones(1)) if dist.get_rank() else dist.recv(kept, src=1)"
    run = node.start(f"kept = 0\n{_COLLECTIVE}{stuck}", grace_s=12.0, timeout_s=limit, **TWO)
    if limit is None:
        run.wait_for(lambda run: len(said(run)) == 2)
        run.signal("interrupt")
    outcome = run.wait()
    assert outcome.status == ("interrupted" if limit is None else "timeout")
    assert "kept" in [value.name for value in outcome.results]


def test_a_process_group_in_one_process_gets_the_hint(node: Node) -> None:
    cell = "import torch.distributed as dist\ndist.init_process_group('gloo')"
    outcome = node.run(cell, gpu_ids=["0", "1"]).outcome
    assert outcome.status == "error"
    assert any("--gpus 2 --ranks 2 runs it as 2" in note for note in outcome.notes), outcome


@pytest.mark.parametrize("others_begin", [True, False])
def test_a_rank_killed_before_it_begins_ends_the_gang(
    node: Node, tmp_path: Path, until: UntilTrue, others_begin: bool
) -> None:
    """Between its order and ``GO``. Where no other rank has begun, the gang is begun anew."""
    place = tmp_path.resolve()
    source = "from jupyter_gpu_release import ranks\nprint('go')\nranks.barrier()"
    grace_s = 60.0 if others_begin else 1.0  # who is held does not obey
    run = node.start(source, workdir=str(place), gpu_ids=None, ranks=3, grace_s=grace_s)
    until(lambda: len(_ranks_in(place)) == 3, "the ranks in their folder")
    ranks = _ranks_in(place)
    supervisors = [psutil.Process(rank).ppid() for rank in ranks]
    # its supervisor tells of it once the others have begun, or they are held until it has
    held = [supervisors[1]] if others_begin else [ranks[0], ranks[2]]
    for process in held:
        os.kill(process, signal.SIGSTOP)
    os.kill(ranks[1], signal.SIGKILL)
    node.loop.call_soon_threadsafe(run.on_node.grant, ["0", "1", "2"])
    if others_begin:
        run.wait_for(lambda run: len(said(run)) == 2)
        os.kill(supervisors[1], signal.SIGCONT)
    outcome = run.wait()
    if others_begin:
        assert (outcome.status, outcome.error is not None) == ("died", True)
        words = rf"rank [012] on {socket.gethostname()}: the cell's process was killed \(SIGKILL\)"
        assert re.match(words, outcome.error.evalue if outcome.error else ""), outcome.error
    else:
        assert (outcome.status, said(run)) == ("ok", dict.fromkeys(range(3), "go\n"))
    until(lambda: all(map(process_control.is_gone, [*ranks, *supervisors])), f"the end of {ranks}, {supervisors}")


def _ranks_in(folder: Path) -> list[int]:
    """Ranks that have entered the folder of their cell; not what they start themselves."""
    found = {}
    for pid in process_control.descendants_of(os.getpid()):
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if Path(f"/proc/{pid}/cwd").readlink() == folder:
                found[pid] = psutil.Process(pid).ppid()
    return [pid for pid, parent in found.items() if parent not in found]


def test_a_rank_killed_after_its_last_word_spoils_nothing(node: Node) -> None:
    outcome = node.run(
        "import atexit, os, signal\nfrom jupyter_gpu_release import ranks\nkept = 1\n"
        "if ranks.rank == 1:\n    atexit.register(lambda: os.kill(os.getpid(), signal.SIGKILL))",
        **TWO,
    ).outcome
    assert (outcome.status, outcome.error) == ("ok", None)
    assert "kept" in [value.name for value in outcome.results]


def test_a_rank_that_is_ended_for_its_memory_is_told_what_it_shares(node: Node) -> None:
    cell = "from jupyter_gpu_release import ranks\nfull = b'x' * (300 << 20)\nranks.barrier()"
    outcome = node.run(cell, memory_bytes=256 << 20, **TWO).outcome
    assert outcome.status == "memory"
    assert outcome.error is not None
    assert "its limit is 128 MiB (256 MiB shared by the 2 ranks of its node)" in outcome.error.evalue


def test_the_failing_ranks_traceback_is_the_runs(node: Node) -> None:
    source = _COLLECTIVE + "if dist.get_rank() == 1:\n    raise ValueError('first')\ndist.all_reduce(torch.ones(1))"
    outcome = node.run(source, **TWO).outcome
    assert outcome.error is not None
    assert (outcome.error.ename, outcome.error.evalue) == ("ValueError", "first")
    assert outcome.error.traceback[0] == f"in rank 1 on {socket.gethostname()}:"
    assert "kept" in [value.name for value in outcome.results]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("stuck() if ranks.rank else await_stuck()", "rank 1 on .*: still ran .* after rank 0 had ended"),
        ("stuck() if ranks.rank else await_stuck() or ranks.barrier()", "did not come to where rank 0 waited for it"),
    ],
)
def test_a_rank_that_hangs_is_shown_where_it_stands_and_ended(node: Node, cell: str, words: str) -> None:
    source = (
        "import time\nfrom jupyter_gpu_release import ranks, run_dir\nstands = run_dir / 'stands'\n"
        "def stuck():\n    stands.touch()\n    time.sleep(1000)\n"
        f"def await_stuck():\n    while not stands.exists():\n        time.sleep(0.01)\n{cell}"
    )
    # so long that both have begun within it of each other
    outcome = node.run(source, gang=GangOrder(rank_timeout_s=4.0), **TWO).outcome
    assert outcome.status == "hung"
    assert outcome.error is not None
    assert re.search(words, outcome.error.evalue), outcome.error.evalue
    assert "in stuck" in outcome.error.evalue
    assert "jupyter_gpu_release/node" not in outcome.error.evalue


_THIEF = (
    "import socket, sys\nat = '127.0.0.1', int(sys.argv[1])\n"
    "try:\n    socket.socket().bind(at)\nexcept OSError as error:\n    print(error.strerror)\n"
    "thief = socket.socket()\nthief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
    "thief.bind(at)\nthief.listen()\nprint('listens', flush=True)\nsys.stdin.read()"
)


@pytest.mark.parametrize(
    ("rank", "port", "serve", "words"),
    [
        (
            0,
            "os.environ['MASTER_PORT']",
            "import torch.distributed as dist; dist.init_process_group('gloo')",
            "MASTER_PORT {port} was free",
        ),
        (
            1,
            "json.loads(os.environ['TF_CONFIG'])['cluster']['worker'][1].split(':')[1]",
            "await asyncio.start_server(print, '127.0.0.1', int(port))",
            "the port {port} of rank 1 (TF_CONFIG) was free",
        ),
        (
            0,
            "os.environ['JAX_COORDINATOR_ADDRESS'].split(':')[1]",  # JAX's and TensorFlow's errors name no port
            "try:\n        socket.create_server(('127.0.0.1', int(port)))\n"
            "    except OSError:\n        raise RuntimeError('UNKNOWN: Failed to start RPC server') from None",
            "the port {port} of rank 0 (TF_CONFIG, JAX_COORDINATOR_ADDRESS) was free",
        ),
    ],
    ids=["torch", "tensorflow", "jax"],
)
def test_a_port_is_kept_for_the_ranks_and_a_stolen_one_is_said_so(
    node: Node, tmp_path: Path, rank: int, port: str, serve: str, words: str
) -> None:
    source = (
        "import asyncio, json, os, socket, time\nfrom jupyter_gpu_release import ranks\n"
        f"port = {port}\nif ranks.rank == {rank}:\n    print(port, flush=True)\n"
        f"    while not os.path.exists('stolen'):\n        time.sleep(0.01)\n    {serve}\nelse:\n    ranks.barrier()"
    )
    run = node.start(source, workdir=str(tmp_path), **TWO)
    run.wait_for(lambda run: said(run).get(rank, "").endswith("\n"))
    number = said(run)[rank].strip()
    command = [sys.executable, "-I", "-S", "-c", _THIEF, number]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as thief:
        assert thief.stdout is not None
        assert [thief.stdout.readline(), thief.stdout.readline()] == ["Address already in use\n", "listens\n"]
        (tmp_path / "stolen").touch()
        outcome = run.wait()
    assert outcome.status == "error"
    assert [note for note in outcome.notes if words.format(port=number) in note], outcome
    assert sum("listens there now" in note for note in outcome.notes) == 1
