"""Cells in environments where cells run as their owners: what a user's packages may do, and as whom. Needs root."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from node_bed import Run
from owners_bed import ACCOUNTS, OwnersNode, values_of
from unix_users import ANN, BOB, as_user, needs_root, public_folder, python_for_all
from wheel_bed import make_wheel

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.host.access_lists import admitted
from jupyter_gpu_release.node.agent import environments, fork_server, gang_run
from jupyter_gpu_release.node.agent.fork_servers import ForkServers
from jupyter_gpu_release.node.environments.installer import Installer
from jupyter_gpu_release.node.supervisor.agent_connection import Hello, fork_pair, new_mark
from jupyter_gpu_release.protocol.environments import BuildReport, Plan, PlannedPackage, named_by_content
from jupyter_gpu_release.protocol.wire import encode

pytestmark = [needs_root, pytest.mark.thorough]
Until = Callable[[Callable[[], object], str], None]
#: a module's text: whoever runs it leaves its user there
_TELLS = "import os\nos.open(f'{witness}/{{os.geteuid()}}', os.O_CREAT, 0o666)\n"


class Bed(OwnersNode):
    """Such a node with wheels of its own, and a folder in which code leaves the number of its user."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wheels, self.witness = folder, folder / "wheels", folder / "witness"
        self.witness.mkdir()
        self.witness.chmod(0o1777)
        super().__init__(
            folder,
            environments=str(folder / "environments"),
            environment_index="none",
            environment_wheels=[str(self.wheels)],
        )

    @property
    def tells(self) -> str:
        return _TELLS.format(witness=self.witness)

    @property
    def seen(self) -> set[int]:
        """Users as whom code of packages ran since it was asked last."""
        found = {int(each.name) for each in self.witness.iterdir()}
        for each in self.witness.iterdir():
            each.unlink()
        return found

    def plan(self, *pins: str, sent: tuple[Path, ...] = ()) -> tuple[Plan, list[bytes]]:
        """An environment of wheels that the node has, and of some that a notebook sends along."""
        wheels = [each.read_bytes() for each in sent]
        packages = [PlannedPackage(*pin.split("==")) for pin in pins]
        for path, wheel in zip(sent, wheels, strict=True):
            name, version = path.name.split("-")[:2]
            digest = f"sha256:{hashlib.sha256(wheel).hexdigest()}"
            packages.append(PlannedPackage(name.replace("_", "-"), version, is_shipped=True, digest=digest))
        return named_by_content(Plan(sys.version.split()[0], "here", packages)), wheels

    def build(self, uid: int | None, plan: Plan, wheels: list[bytes]) -> BuildReport:
        owner = ACCOUNTS[uid] if uid is not None else None
        report: BuildReport = self.node.call(self.node.environments.build(plan, wheels, owner))
        return report

    def built(self, uid: int, *pins: str, sent: tuple[Path, ...] = ()) -> str:
        plan, wheels = self.plan(*pins, sent=sent)
        assert self.build(uid, plan, wheels).problem == ""
        return plan.digest

    def servers(self, uid: int, digest: str) -> ForkServers:
        return self._call(lambda: self.node.environments.servers_of(digest, ACCOUNTS[uid]))

    def server(self, uid: int, digest: str) -> int:
        """The process from which cells of a user are forked in an environment."""
        current = self.servers(uid, digest)._current
        assert current is not None
        return current.pid

    def _call(self, work: Callable[[], Any]) -> Any:
        async def do() -> Any:
            return work()

        return self.node.call(do())

    def cell(self, uid: int, source: str, digest: str, **options: Any) -> Run:
        return self.run(uid, source, environment=digest, **options)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with public_folder() as folder:
        python, sys.executable = sys.executable, python_for_all(folder)
        made = Bed(folder)
        make_wheel(made.wheels, "plain")
        yield made
        made.node.close()
        sys.executable = python


_WHERE = """
import os, pathlib, subprocess, sys, plain
ids = os.getresuid(), os.getresgid(), sorted(os.getgroups())
variables = [os.environ[name] for name in ("HOME", "USER")]
status = pathlib.Path("/proc/self/status").read_text().splitlines()
rights = {line.split()[1].strip("0") for line in status if line.startswith(("CapEff", "CapPrm", "CapAmb"))}
supervisor = os.getppid()
server = int(pathlib.Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
prefix, version = sys.prefix, plain.__version__
spawned = subprocess.run([sys.executable, "-c", "import plain; print(plain.__file__)"], capture_output=True).stdout
try:
    pathlib.Path(plain.__file__).chmod(0o777)
    changed = True
except PermissionError:
    changed = False
"""


def test_a_cell_in_an_environment_is_its_owners_through_and_through(bed: Bed) -> None:
    digest = bed.built(ANN, "plain==1.0")
    run = bed.cell(ANN, _WHERE, digest)
    names = values_of(run)
    account = ACCOUNTS[ANN]
    assert names["ids"] == ((ANN,) * 3, (ANN,) * 3, sorted(account.groups))
    assert (names["variables"], names["rights"]) == ([account.home, "ann"], {""})
    folder = bed.folder / "environments" / digest
    assert (names["prefix"], names["version"]) == (str(folder), "1.0")
    assert names["spawned"].decode().startswith(str(folder))
    assert not names["changed"]
    assert names["server"] == bed.server(ANN, digest)
    assert process_control.user_of(names["server"]) == ANN
    assert (bed.node.marks / run.order.run).stat().st_uid == 0
    large = bed.cell(ANN, "large = bytes(3 << 20)", digest).outcome.values
    assert large is not None
    assert large.digest, "they are on her store"
    assert {path.lstat().st_uid for path in bed.stores[ANN].rglob("*")} == {ANN}
    again = values_of(bed.cell(ANN, _WHERE, digest))
    assert again["server"] == names["server"], "the second cell is warm"


def test_two_owners_share_an_environment_and_no_process_of_it(bed: Bed) -> None:
    digest = bed.built(ANN, "plain==1.0")
    assert bed.built(BOB, "plain==1.0") == digest
    hers, his = (values_of(bed.cell(uid, _WHERE, digest)) for uid in (ANN, BOB))
    assert hers["prefix"] == his["prefix"]
    assert hers["server"] != his["server"]
    assert (hers["ids"][0][0], his["ids"][0][0]) == (ANN, BOB)
    more = msgspec.structs.replace(ACCOUNTS[ANN], groups=[ANN])
    assert bed._call(lambda: bed.node.environments.servers_of(digest, more)) is not bed.servers(ANN, digest)


def test_code_of_packages_runs_as_their_owner_only(bed: Bed) -> None:
    """Also what Python runs before anybody imports, and what is named as a library that is imported ahead."""
    files = {"sent_along.py": bed.tells, "sent_along.pth": "import sent_along\n", "sitecustomize.py": bed.tells}
    sent = make_wheel(bed.folder / "sent", "sent_along", files={**files, "tqdm.py": bed.tells})
    digest = bed.built(ANN, sent=(sent,))
    assert values_of(bed.cell(ANN, "import sent_along, os\nuid = os.getuid()", digest))["uid"] == ANN
    assert bed.seen == {ANN}


def test_a_build_starts_nothing_that_a_package_brings(bed: Bed) -> None:
    """An interpreter's settings (they name the library that it starts with), and what is left by a build that fails."""
    library = bed.folder / "other" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    (library / "encodings").mkdir(parents=True)
    for place in (library / "os.py", library / "encodings" / "__init__.py"):
        place.write_text(f"import posix\nposix.open(f'{bed.witness}/{{posix.geteuid()}}', posix.O_CREAT, 0o666)\n")
    settings = {"settings-1.0.data/data/pyvenv.cfg": f"home = {bed.folder}/other/bin\n", "settings.py": "x = 1\n"}
    plan, wheels = bed.plan(sent=(make_wheel(bed.folder / "sent", "settings", files=settings),))
    bed.build(None, plan, wheels)
    assert bed.seen == set()
    started = make_wheel(bed.folder / "sent", "started", files={"started.py": bed.tells, "a.pth": "import started\n"})
    refused = {"refused.py": "x = 1\n", "refused-1.0.data/scripts/python": "#!/bin/sh\n"}
    plan, wheels = bed.plan(sent=(started, make_wheel(bed.folder / "sent", "refused", files=refused)))
    assert "reserved name" in bed.build(ANN, plan, wheels).problem
    assert bed.seen == set()
    assert list((bed.folder / "environments").glob(".*-*")) == []


def test_an_environment_is_entered_by_those_who_asked_for_its_content(bed: Bed) -> None:
    sent = make_wheel(bed.folder / "sent", "hers", files={"hers.py": "secret = 1\n"})
    digest = bed.built(ANN, sent=(sent,))
    folder = bed.folder / "environments" / digest
    assert admitted(folder) == [ANN]
    (module,) = folder.glob("lib/python*/site-packages/hers.py")
    assert as_user(ANN, module.read_bytes) == 0
    assert as_user(BOB, module.read_bytes) != 0, "her processes' arguments tell him its name"
    for uid in (ANN, BOB):
        assert as_user(uid, lambda: os.listdir(folder.parent)) != 0
    for name in ("cache", "bytecode", "locks"):
        assert as_user(ANN, lambda name=name: os.listdir(folder.parent / name)) != 0
    forged = msgspec.structs.replace(bed.plan("plain==1.0")[0], digest=digest)
    assert "has to be named by its packages" in bed.build(BOB, forged, []).problem
    with pytest.raises(ClusterError, match=r"ended: bob .* cannot start .*Permission denied"):
        bed.node.call(bed.servers(BOB, digest).current_server())
    with pytest.raises(ClusterError, match="names no owner"):
        bed._call(lambda: bed.node.environments.servers_of(digest))


def test_no_fork_server_stands_for_who_has_none_and_root_has_none(bed: Bed) -> None:
    plan, wheels = bed.plan("plain==1.0")
    roots = msgspec.structs.replace(ACCOUNTS[ANN], uid=0)
    assert "no cell runs as root" in bed.node.call(bed.node.environments.build(plan, wheels, roots)).problem
    assert bed.build(None, plan, wheels).problem == "", "an operator's build needs none"


def test_a_killed_fork_server_takes_its_cells_along_and_the_next_run_waits_for_another(bed: Bed, until: Until) -> None:
    digest = bed.built(ANN, "plain==1.0")
    source = "import os, subprocess\nleft = subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
    run = bed.start(ANN, f"{source}print(os.getpid(), left.pid, flush=True)\nleft.wait()", environment=digest)
    run.wait_for(lambda run: run.text().strip())
    server = bed.server(ANN, digest)
    os.kill(server, signal.SIGKILL)
    assert run.wait().status == "lost"
    for pid in (server, *map(int, run.text().split())):
        until(lambda pid=pid: process_control.is_gone(pid), f"the end of {pid}")
    with pytest.raises(ClusterError, match="no process yet that cells are forked from"):
        bed._call(lambda: bed.node.environments.standing_servers(digest, ACCOUNTS[ANN]))
    assert bed.built(ANN, "plain==1.0") == digest
    assert values_of(bed.cell(ANN, "x = 1", digest))["x"] == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_cell_that_hinders_its_supervisor_is_ended_by_root(bed: Bed, until: Until, number: int) -> None:
    """It is the owner's process in an environment."""
    digest = bed.built(ANN, "plain==1.0")
    bed.seen.clear()
    source = (
        f"import os, time\nos.open(f'{bed.witness}/{{os.getpid()}}', os.O_CREAT)\nos.kill(os.getppid(), {number})\n"
    )
    assert bed.cell(ANN, f"{source}time.sleep(3600)", digest).outcome.status == "lost"
    (cell,) = bed.seen
    until(lambda: process_control.is_gone(cell), "the end of the cell")


def test_a_fork_server_that_its_owner_hinders_is_ended_when_its_last_cell_has(
    bed: Bed, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not end at a word, and its environment would stay for ever."""
    monkeypatch.setattr(fork_server, "_ENDS_S", 0.1)
    digest = bed.built(ANN, "plain==1.0")
    run = bed.start(ANN, "import time\nprint(1, flush=True)\ntime.sleep(3600)", environment=digest)
    run.wait_for(lambda run: run.text())
    server = bed.server(ANN, digest)
    os.kill(server, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(environments, "_ENDS_S", 0.5)
        assert not bed.node.call(bed.node.environments.remove(digest)), "a cell is there"
    assert not process_control.is_gone(server)
    run.signal("kill")
    run.wait()
    assert bed.node.call(bed.node.environments.remove(digest))
    until(lambda: process_control.is_gone(server), "the end of the fork server")


def test_a_cell_whose_supervisor_says_what_is_too_long_is_ended(
    bed: Bed, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's agent would keep it: what a user's process says may have any length."""
    monkeypatch.setattr(gang_run, "_MOST_FRAME_BYTES", 1 << 16)
    digest = bed.built(ANN, "plain==1.0")
    bed.seen.clear()
    source = f"import os, time\nos.open(f'{bed.witness}/{{os.getpid()}}', os.O_CREAT)\n"
    long = "from IPython.display import HTML, display\ndisplay(HTML('x' * (1 << 17)))\ntime.sleep(10)"
    assert bed.cell(ANN, source + long, digest).outcome.status == "lost"
    (cell,) = bed.seen
    until(lambda: process_control.is_gone(cell), "the end of the cell")


def test_nobody_looks_into_an_environment_while_it_is_built(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments of the installer tell its name, and what was opened then would stay open."""
    seen, call = list[int](), Installer.call

    async def note(self: Installer, *words: Any, **options: Any) -> Any:
        answer = await call(self, *words, **options)
        seen.extend(each.stat().st_mode & 0o777 for each in (bed.folder / "environments").glob(".building-*"))
        return answer

    monkeypatch.setattr(Installer, "call", note)
    sent = make_wheel(bed.folder / "sent", "private", files={"private.py": "secret = 2\n"})
    digest = bed.built(ANN, sent=(sent,))
    assert set(seen) == {0o700}
    assert (bed.folder / "environments" / digest).stat().st_mode & 0o007 == 0


def test_an_owners_fork_server_ends_with_the_agent(bed: Bed, until: Until) -> None:
    digest = bed.built(ANN, "plain==1.0")
    program = f"""
import asyncio, sys, time
import msgspec
from pathlib import Path
from jupyter_gpu_release.node.agent import environments
from jupyter_gpu_release.node.agent.fork_servers import ForkServers
from jupyter_gpu_release.protocol.config import UnixUser
from jupyter_gpu_release.protocol.node import AgentConfig

async def main():
    config = msgspec.json.decode({msgspec.json.encode(bed.node.config)!r}, type=AgentConfig)
    owner = msgspec.json.decode({msgspec.json.encode(ACCOUNTS[ANN])!r}, type=UnixUser)
    servers = ForkServers(config, "other", environment=Path({str(bed.folder / "environments" / digest)!r}), owner=owner)
    print((await servers.current_server()).pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        server = int(agent.stdout.readline())
        assert process_control.user_of(server) == ANN
        agent.kill()
    until(lambda: process_control.is_gone(server), "the end of the fork server")


@pytest.mark.parametrize(
    ("lie", "user"),
    [
        (lambda hello: msgspec.structs.replace(hello, rank=1), 0),
        (lambda hello: msgspec.structs.replace(hello, supervisor=1), 0),
        (lambda hello: msgspec.structs.replace(hello, mark=""), 0),
        (lambda hello: hello, ANN),
        (lambda hello: b"\xc1", 0),
    ],
    ids=["another rank", "another supervisor", "a mark that all bear", "processes of others", "no word"],
)
def test_root_signals_no_process_for_a_users_word(lie: Callable[[Hello], object], user: int, tmp_path: Path) -> None:
    """All that a fork server says of a pair is looked at: it may be a user's."""
    path, me = tmp_path / "server", os.getpid()

    async def play() -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            asked = asyncio.create_task(fork_pair(str(path), 1 << 16, user))
            listener.setblocking(False)
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            fds = [os.pidfd_open(me), os.pidfd_open(me)]
            said = lie(Hello(me, new_mark(), me))
            with connection:
                socket.send_fds(connection, [said if isinstance(said, bytes) else encode(said)], fds)
                with pytest.raises(ConnectionAbortedError):
                    await asked
            for fd in fds:
                os.close(fd)

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(play())
    assert len(os.listdir("/proc/self/fd")) == before


def test_root_ends_no_process_of_others_whatever_mark_a_user_says(bed: Bed) -> None:
    """Marks are in names of folders that all users see."""
    environ = {process_control.RUN_MARKER: "20260101-000000-00000000"}
    with subprocess.Popen(["sleep", "3600"], env=environ, user=BOB, group=BOB, extra_groups=[]) as other:
        found = {
            uid: process_control.left_by(0, "mark", environ[process_control.RUN_MARKER], uid) for uid in (ANN, BOB)
        }
        other.kill()
    assert {uid: other.pid in pids for uid, pids in found.items()} == {ANN: False, BOB: True}


def test_root_starts_no_python_that_a_user_may_change(bed: Bed) -> None:
    """As the path of a named environment, or by its version."""
    theirs = bed.folder / "theirs"
    (theirs / "bin").mkdir(parents=True)
    python = theirs / "bin" / "python"
    python.write_text(f'#!/bin/sh\n: > {bed.witness}/$(id -u)\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    os.chown(theirs, ANN, ANN)
    node = bed.node.environments
    (found,) = bed.node.call(node.packages_with([str(theirs)])).pythons
    assert f"{theirs} is not root's alone, so root does not start Python {theirs}" in found.problem
    assert "chown -R root" in found.mend
    plan = named_by_content(Plan(sys.version.split()[0], "here", [], interpreter=str(theirs)))
    assert "not root's alone" in bed.build(ANN, plan, []).problem
    assert bed.seen == set()
    os.chown(theirs, 0, 0)
    (theirs / "site.py").write_text("")
    (theirs / "site.py").chmod(0o666)
    with pytest.raises(ClusterError, match=r"site\.py is not root's alone"):
        bed.node.call(node._pythons.look(str(theirs)))
    assert bed.seen == set()
    (theirs / "site.py").chmod(0o644)
    away = bed.folder / "away"
    away.mkdir()
    (away / "module.py").write_text("")
    os.chown(away / "module.py", ANN, ANN)
    (theirs / "lib").symlink_to(away)
    with pytest.raises(ClusterError, match=r"away/module\.py is not root's alone"):
        bed.node.call(node._pythons.look(str(theirs)))
    (theirs / "lib").unlink()
    assert bed.seen == set()
    assert bed.node.call(node._pythons.look(str(theirs))).python == str(python)
    assert bed.seen == {0}


def test_a_folder_that_owners_cannot_be_let_into_is_named(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its filesystem has no access lists, or users cannot come to it."""
    plan, wheels = bed.plan("plain==1.0")

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    with monkeypatch.context() as patch:
        patch.setattr(environments, "admit", refuse)
        patch.setattr(environments, "admitted", refuse)
        problem = bed.build(ANN, plan, wheels).problem
        assert f"the filesystem of {bed.folder}/environments keeps no access lists (ACLs)" in problem
        assert problem in str(bed.node.call(bed.node.environments.find_problem()))
    bed.folder.chmod(0o700)
    try:
        assert f"only some may enter {bed.folder}" in bed.build(ANN, plan, wheels).problem
    finally:
        bed.folder.chmod(0o755)
    assert bed.node.call(bed.node.environments.find_problem()) == ""


def test_an_owner_is_told_what_the_fork_server_ended_of(bed: Bed) -> None:
    """By the end of its log, were that ever so long."""
    text = (
        "import os, sys\nos.ftruncate(2, 1 << 40)\nos.lseek(2, 0, os.SEEK_END)\nos.write(2, b'\\nthe last word\\n')\n"
    )
    sent = make_wheel(
        bed.folder / "sent", "ends", files={"ends.pth": "import ends\n", "ends.py": text + "os._exit(3)\n"}
    )
    plan, wheels = bed.plan(sent=(sent,))
    assert "ended: the last word" in bed.build(ANN, plan, wheels).problem
