"""Cells that run as their owners: two users on one node, and what one can do to the other. Needs root."""

from __future__ import annotations

import os
import re
import resource
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from doc_blocks import block
from forked import forked
from node_bed import is_running
from owners_bed import ACCOUNTS, Limits, OwnersNode, values_of
from unix_users import ANN, BOB, TEAM, as_user, needs_root, public_folder, python_for_all

from jupyter_gpu_release.gateway.auth.unix_users import UnixUsers
from jupyter_gpu_release.host.threads import StoreThreads
from jupyter_gpu_release.local_cluster.store_modes import MODE, USERS, store_settings
from jupyter_gpu_release.node.results.spool import SpoolRecord, short_address
from jupyter_gpu_release.protocol.config import GatewayConfig
from jupyter_gpu_release.protocol.node import AttemptId
from jupyter_gpu_release.protocol.runs import Outcome
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.private_stores import acting_for
from jupyter_gpu_release.store.run_folders import create_run_folder

pytestmark = [needs_root, pytest.mark.thorough]
Until = Callable[[Callable[[], object], str], None]
_LARGE = 3 << 20
#: until a file is there
_WAIT = "import os, time\nprint(os.getpid())\nwhile not os.path.exists({gate!r}): time.sleep(0.01)\n"


@pytest.fixture(scope="module")
def owners() -> Iterator[OwnersNode]:
    with public_folder() as folder:
        python, sys.executable = sys.executable, python_for_all(folder)
        bed = OwnersNode(folder)
        yield bed
        bed.node.close()
        sys.executable = python


def _owners_of(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def test_a_cell_is_its_owners_process_through_and_through(owners: OwnersNode) -> None:
    source = """
import os, pathlib, stat
ids = (os.getresuid(), os.getresgid(), sorted(os.getgroups()))
status = pathlib.Path("/proc/self/status").read_text()
rights = {line.split()[1].strip("0") for line in status.splitlines() if line.startswith(("CapEff", "CapPrm", "CapAmb"))}
variables = [os.environ[name] for name in ("HOME", "USER", "LOGNAME", "SHELL")]
os.umask(mask := os.umask(0))
(pathlib.Path(os.environ["GPU_RUN_DIR"]) / "made.txt").write_text("hers")
try:
    os.setuid(0)
    back = "root"
except PermissionError:
    back = "no"
inherited = {}
for name in os.listdir("/proc/self/fd"):
    try:
        if stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
            inherited[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        pass
sockets = len(inherited)
"""
    run = owners.run(ANN, source)
    names = values_of(run)
    assert names["ids"] == ((ANN,) * 3, (ANN,) * 3, sorted([ANN, TEAM]))
    assert names["rights"] == {""}
    assert names["variables"] == ["/", "ann", "ann", "/bin/bash"]
    assert names["mask"] == 0o022
    assert names["back"] == "no"
    assert names["sockets"] == 4  # to the supervisor, to where ranks meet, and the loop's own two
    assert [file.path for file in run.outcome.files] == ["run_dir/made.txt"]
    folder = RunPaths(Path(run.order.folder))
    assert folder.values.exists()
    assert _owners_of(owners.stores[ANN]) == {ANN}
    assert (owners.node.marks / run.order.run).stat().st_uid == 0


def test_a_cell_has_its_owners_limits_above_and_below_those_of_root(owners: OwnersNode) -> None:
    of_root = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    more = (
        7 if forked(partial(resource.setrlimit, resource.RLIMIT_NOFILE, (512, of_root + 7))) == 0 else 0
    )  # containers
    source = """
import os, resource, signal
found = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper())) for name in ("nproc", "nofile", "core")}
left = []
try:
    while len(left) < 40:
        if not (pid := os.fork()):
            signal.pause()
        left.append(pid)
except BlockingIOError as error:
    refused = error.strerror
for pid in left:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
try:
    resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))
    raised = True
except ValueError:
    raised = False
"""
    limits = {"nproc": (30, 30), "nofile": (512, of_root + more), "core": (0, 0)}
    names = values_of(owners.run(BOB, source, limits))
    assert names["found"] == limits
    assert names["refused"]
    assert len(names["left"]) < 30
    assert not names["raised"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == of_root


def test_a_cell_has_the_limits_of_the_operator_guides_table(owners: OwnersNode, tmp_path: Path) -> None:
    """Everybody's, and those of a user's own line."""
    table = tmp_path / "users.yaml"
    most = min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])  # in containers root may not raise it
    text = block("operate/cells-as-owners.md", "## Limits of the system (`ulimit`)", '"*"').filled(
        {"anna": "nobody", "65536": str(most)}
    )
    table.write_text(text)
    settings = store_settings({MODE: "owner", USERS: str(table)})
    account = UnixUsers(GatewayConfig("", "", "", "", "", **settings), StoreThreads())._look_up("ann")
    assert account.name == "nobody"
    source = f"""
import resource
found = {{name: resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper())) for name in {sorted(account.limits)!r}}}
"""
    found = values_of(owners.run(ANN, source, dict(account.limits)))["found"]
    assert found == {
        "nproc": (4096, 4096),
        "nofile": (4096, most),
        "core": (0, 0),
        "as": (256 << 30, 256 << 30),
        "fsize": (-1, -1),
    }


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"as": (1 << 20, 1 << 20)}, r"cells of ann may have 1 MiB of addresses \(`as`\), and libraries take"),
        ({"nofile": (1 << 40, 1 << 40)}, "the limit `nofile` of ann cannot be .* on this node"),
    ],
    ids=["less than libraries take", "more than the system has"],
)
def test_limits_that_no_cell_can_have_are_named(owners: OwnersNode, limits: Limits, why: str) -> None:
    outcome = owners.run(ANN, "x = 1", limits).outcome
    assert outcome.error is not None
    assert re.search(why, outcome.error.evalue), outcome.error
    assert "JUPYTER_GPU_UNIX_USERS" in outcome.error.hint


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (
            {"fsize": (1 << 20, 2 << 20)},
            r"the results need a file of 3 MiB, and a file may have 2 MiB here \(`fsize`\)",
        ),
        ({"nproc": (1, 1)}, "no process can be made that keeps the results: Resource temporarily unavailable"),
    ],
    ids=["a file too large", "a process too many"],
)
def test_results_that_the_limits_forbid_are_the_cells_error_and_small_ones_come_home(
    owners: OwnersNode, limits: Limits, why: str
) -> None:
    run = owners.run(ANN, f"large = bytes({_LARGE})", limits)
    assert run.outcome.error is not None, run.outcome
    assert re.search(why, run.outcome.error.evalue), run.outcome.error
    failed = owners.run(ANN, f"large = bytes({_LARGE})\n1 / 0", limits).outcome
    assert failed.error is not None
    assert failed.error.ename == "ZeroDivisionError"
    assert [note for note in failed.notes if re.search(why, note)], failed.notes
    assert values_of(owners.run(ANN, "small = 42", limits))["small"] == 42


def test_a_soft_limit_on_files_does_not_keep_results_from_the_store(owners: OwnersNode) -> None:
    run = owners.run(ANN, f"large = bytes({_LARGE})", {"fsize": (1 << 20, 8 << 20)})
    assert run.outcome.values is not None, run.outcome
    assert run.outcome.values.digest


def test_a_folder_that_the_cells_user_may_not_enter_is_as_one_that_is_not_there(owners: OwnersNode) -> None:
    """As a home with 0700 is for the service user of a group's store. A folder that was asked for is an error."""
    home = owners.stores[BOB]
    source = "import os, notebooks_own\nwhere, there = os.getcwd(), notebooks_own.THERE"
    modules = {"notebooks_own.py": b"THERE = 'sent along'"}
    run = owners.run(ANN, source, at=home, modules=modules)
    names = values_of(run)
    assert names["where"] == str(RunPaths(Path(run.order.folder)).files)
    assert names["there"] == "sent along"
    assert [note for note in run.outcome.notes if f"(uid {ANN}) may not enter the notebook's folder {home}" in note]
    refused = owners.run(ANN, source, at=home, workdir_asked=True).outcome
    assert refused.error is not None
    assert refused.error.ename == "OptionError"


def test_large_results_are_written_by_the_owners_process(owners: OwnersNode) -> None:
    run = owners.run(BOB, f"print('begun')\nimport numpy\nlarge = numpy.ones({_LARGE}, dtype='u1')\nprint(large.sum())")
    assert run.outcome.status == "ok", run.outcome
    assert run.text() == f"begun\n{_LARGE}\n"
    assert run.outcome.values is not None
    assert run.outcome.values.file
    assert run.outcome.values.digest
    assert _owners_of(owners.stores[BOB]) == {BOB}
    spool = Path(owners.node.keeping.order.spool) / "users" / str(BOB)
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700
    assert _owners_of(spool) == {BOB}


def test_results_that_the_store_refuses_wait_in_the_owners_spool_and_are_moved_as_the_owner(
    owners: OwnersNode, until: Until
) -> None:
    store = owners.stores[ANN]
    run = owners.start(
        ANN, f"import os\nwhile not os.path.exists({str(store / 'go')!r}): pass\nlarge = bytes({_LARGE})"
    )
    run.wait_for(is_running)
    (store / "runs").rename(store / "away")
    (store / "go").touch()
    keeping = owners.node.keeping
    until(lambda: keeping._kept[run.order.attempt_id].waiting.state == "spilled", "the spilled results")
    (store / "away").rename(store / "runs")
    outcome = run.wait()
    assert outcome.values is not None
    assert outcome.values.digest
    assert _owners_of(store / "runs") | _owners_of(store / "blobs") == {ANN}
    (store / "go").unlink()


_PRYING = """
import os, pathlib, signal, socket

def attempt(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"

def connect(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)

found = {{}}
for name, pid in {pids!r}.items():
    process = pathlib.Path(f"/proc/{{pid}}")
    found[f"{{name}}: signal"] = attempt(lambda: os.kill(pid, signal.SIGTERM))
    found[f"{{name}}: files"] = attempt(lambda: os.listdir(process / "fd"))
    found[f"{{name}}: folder"] = attempt(lambda: os.stat(process / "cwd/."))
    for entry in ("environ", "mem", "maps"):
        found[f"{{name}}: {{entry}}"] = attempt(lambda: (process / entry).open("rb").read(1))
found |= {{path: attempt(lambda: os.listdir(path)) for path in {paths!r}}}
found |= {{path: attempt(lambda: connect(path)) for path in {sockets!r}}}
found["supervisor: signal"] = attempt(lambda: os.kill(os.getppid(), signal.SIGTERM))
"""


def test_one_user_can_do_nothing_to_the_other_nor_to_the_node(owners: OwnersNode) -> None:
    gate = owners.stores[BOB].parent.parent.parent / "gate"
    other = owners.start(
        BOB, f"import os\nprint(os.getpid())\nwhile not os.path.exists({str(gate)!r}): os.sched_yield()\nx = 1"
    )
    other.wait_for(lambda run: run.text().strip())
    server = owners.node.servers._current
    assert server is not None
    pids = {"bob's cell": int(other.text()), "agent": os.getpid(), "fork server": server.pid}
    spool = Path(owners.node.keeping.order.spool)
    paths = [str(owners.stores[BOB]), str(owners.node.runtime), str(spool), str(spool / "users" / str(BOB))]
    source = _PRYING.format(pids=pids, paths=paths, sockets=[str(server.path)])
    names = values_of(owners.run(ANN, source))
    assert {name: how for name, how in names["found"].items() if how != "PermissionError"} == {}
    gate.touch()
    assert other.wait().status == "ok"


def test_what_a_cell_leaves_is_ended_by_root_and_an_interrupt_reaches_it(owners: OwnersNode) -> None:
    source = """
import os, subprocess, time
left = subprocess.Popen(["sleep", "3600"], start_new_session=True).pid
print(left, flush=True)
while True:
    time.sleep(0.01)
"""
    run = owners.start(ANN, source)
    run.wait_for(lambda run: run.text().strip())
    run.signal("interrupt")
    outcome = run.wait()
    assert outcome.status == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(int(run.text()), 0)


def test_the_agent_follows_no_link_that_a_user_lays_and_believes_nobody_elses_word(
    owners: OwnersNode, until: Until
) -> None:
    secret = owners.stores[ANN].parent.parent.parent / "secret"
    secret.write_bytes(b"root's")
    secret.chmod(0o600)
    source = f"""
import os
folder = os.path.dirname(os.environ["GPU_RUN_DIR"])
os.symlink({str(secret)!r}, f"{{folder}}/events.log")
print("to be recorded")
while not os.path.exists({f"{secret}.recorded"!r}):
    os.sched_yield()
"""
    run = owners.start(ANN, source)
    until(lambda: run.on_node._recorder.problem, "the agent has tried to record")
    Path(f"{secret}.recorded").touch()
    assert run.wait().status == "ok"
    assert secret.read_bytes() == b"root's"
    assert any("output is not recorded" in note for note in run.outcome.notes)
    keeping = owners.node.keeping

    other = owners.start(BOB, _WAIT.format(gate=f"{secret}.go") + f"large = bytes({_LARGE})")
    other.wait_for(is_running)
    lie = SpoolRecord(other.order.run, "", "/", 0, state="durable", digest="lie", outcome=Outcome(status="ok"))

    def lie_to_agent(path: Path) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, short_address(path) as address:
            sock.sendto(encode(lie), address)

    store = owners.stores[BOB]
    (store / "runs").rename(store / "away")
    Path(f"{secret}.go").touch()
    until(lambda: other.order.attempt_id in keeping._kept, "the persister")
    own, others = (Path(keeping.order.spool, "users", str(uid), "agent.sock") for uid in (ANN, BOB))
    assert as_user(ANN, partial(lie_to_agent, others)) != 0
    assert as_user(ANN, partial(lie_to_agent, own)) == 0
    (store / "away").rename(store / "runs")
    outcome = other.wait()
    assert outcome.values is not None
    assert outcome.values.digest != "lie"


def test_a_users_word_makes_the_agent_signal_no_process_of_others(owners: OwnersNode) -> None:
    keeping = owners.node.keeping
    folder = RunPaths.of(owners.stores[ANN], new_run_id()).folder

    async def claim() -> str:
        keeping.add_persister(AttemptId(folder.name, 0), str(folder), os.getpid(), lambda _: None)
        return (await keeping.wait_until_settled(folder.name)).state

    assert owners.node.call(claim()) == "lost"
    assert os.getpid() not in keeping.spill_all()


def test_root_runs_no_cell(owners: OwnersNode) -> None:
    store = owners.stores[ANN]
    run = new_run_id()
    with acting_for(store):
        folder = create_run_folder(store, run).folder
    owners.node.store = store
    order = owners.node.start(
        "x = 1",
        run=run,
        workdir=str(folder),
        owner=msgspec.structs.replace(ACCOUNTS[ANN], uid=0),
        as_owner=True,
        made=True,
    )
    owners.node.store = store.parent.parent
    outcome = order.wait()
    assert outcome.error is not None
    assert "no cell runs as root" in outcome.error.evalue
