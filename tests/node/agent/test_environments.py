"""A node's environments: built once for all who ask, with a fork server in each; what nobody uses goes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from disks import tmpfs
from wheel_bed import make_sdist, make_wheel, silent_index

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.node.agent import environments
from jupyter_gpu_release.node.agent.environments import NodeEnvironments
from jupyter_gpu_release.node.agent.fork_servers import ForkServers
from jupyter_gpu_release.node.environments.builder import Environments
from jupyter_gpu_release.protocol.environments import Plan, PlannedPackage, named_by_content
from jupyter_gpu_release.protocol.node import AgentConfig

_NODE = "n" * 12


def _plan(*pins: str) -> Plan:
    return named_by_content(Plan(sys.version.split()[0], "here", [PlannedPackage(*pin.split("==")) for pin in pins]))


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    (tmp_path / "run").mkdir()
    return AgentConfig(
        store="",
        runtime=str(tmp_path / "run"),
        preload=["json"],
        environments=str(tmp_path / "environments"),
        environment_index="none",
        environment_wheels=[str(tmp_path / "wheels")],
        environment_timeout_s=60.0,
        environment_retention_s=100.0,
        max_environments=1,
    )


def _made(config: AgentConfig) -> NodeEnvironments:
    return NodeEnvironments(config, _NODE, ForkServers(config, _NODE))


def test_it_is_built_once_has_a_fork_server_and_goes_when_nobody_uses_it(config: AgentConfig, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "plain")
    make_wheel(tmp_path / "wheels", "other")
    one, two = _plan("plain==1.0"), _plan("other==1.0")

    async def play() -> None:
        node = _made(config)
        try:
            both = await asyncio.gather(node.build(one, []), node.build(one, []))
            assert [report.problem for report in both] == ["", ""]
            assert (await node.build(one, [])).seconds == 0.0
            first = node.servers_of(one.digest)
            server = await first.current_server()
            python = Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")[0].decode()
            assert python == str(tmp_path / "environments" / one.digest / "bin" / "python")
            (memory_bytes,) = node.memory_bytes
            assert 1 << 20 < memory_bytes < 1 << 30
            assert not (await node.build(two, [])).problem
            while server.alive:  # a node keeps one of them here
                await asyncio.sleep(0.05)
            assert node.standing_servers(two.digest).is_standing
            rows = await node.list_environments()
            warm = {row.digest: (row.is_warm, [each.name for each in row.packages]) for row in rows}
            assert warm == {one.digest: (False, ["plain"]), two.digest: (True, ["other"])}
            assert {row.digest: row.memory_bytes for row in rows} == {one.digest: 0, two.digest: node.memory_bytes[0]}
            assert not await node.remove("0" * 32)
            assert await node.collect(time.time() + 50.0) == []
            removed: list[str] = []
            while len(removed) < 2:  # once its fork server has ended
                removed += await node.collect(time.time() + 200.0)
                await asyncio.sleep(0.05)
            assert node.memory_bytes == []
            assert sorted(removed) == sorted([one.digest, two.digest])
            with pytest.raises(ClusterError, match="is not on this node"):
                node.servers_of(one.digest)
        finally:
            node.kill_all()

    asyncio.run(play())


def test_no_run_holds_gpus_while_the_fork_server_of_its_environment_starts(config: AgentConfig, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "plain")
    digest = _plan("plain==1.0").digest

    async def play() -> None:
        node = _made(config)
        try:
            await node.build(_plan("plain==1.0"), [])
            server = await node.standing_servers(digest).current_server()
            assert server.process is not None
            server.process.kill()
            while server.alive:
                await asyncio.sleep(0.01)
            for none in (digest, ""):
                with pytest.raises(ClusterError, match="no process yet that cells are forked from") as refused:
                    node.standing_servers(none)
                assert refused.value.hint == "the run waits until it has one"
            assert (await node.build(_plan("plain==1.0"), [])).seconds == 0.0  # as for a run that waits
            assert node.standing_servers(digest).is_standing
            while not node.servers_of("").is_standing:  # the refusal has it started
                await asyncio.sleep(0.05)
            assert node.standing_servers("") is node.servers_of("")
        finally:
            node.kill_all()

    asyncio.run(play())


def test_who_asks_again_while_a_build_is_ended_gets_another_one(config: AgentConfig, tmp_path: Path) -> None:
    with silent_index() as url:
        hanging = msgspec.structs.replace(config, environment_index=url, environment_wheels=[])

        async def play() -> None:
            node = _made(hanging)
            asked = asyncio.create_task(node.build(_plan("plain==1.0"), []))
            while not list((tmp_path / "environments").glob(".building-*")):
                await asyncio.sleep(0.01)
            await node.stop_build(_plan("plain==1.0").digest)
            assert "nobody waited" in (await asked).problem
            assert list((tmp_path / "environments").glob(".*")) == []
            node.kill_all()

        asyncio.run(play())


def test_the_reason_why_a_node_cannot_build_any_is_told(config: AgentConfig, tmp_path: Path) -> None:
    none = msgspec.structs.replace(config, max_environments=0)
    (tmp_path / "file").write_text("")
    nowhere = msgspec.structs.replace(config, environments=str(tmp_path / "file" / "below"))
    assert asyncio.run(_made(none).find_problem()) is None
    assert asyncio.run(_made(config).find_problem()) == ""
    assert "cannot be made: Not a directory" in (asyncio.run(_made(nowhere).find_problem()) or "")


@pytest.mark.parametrize(("user", "setting"), [(1000, "allowed"), (0, "allowed"), (1000, "never")])
def test_a_package_is_built_from_its_source_where_that_is_allowed_and_never_by_root(
    config: AgentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, setting: str
) -> None:
    """By uv, with the package's own build code."""
    make_sdist(tmp_path / "wheels", "made", "1.0")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    allowed = msgspec.structs.replace(config, environment_source_builds=setting)

    async def play() -> None:
        node, plan = _made(allowed), _plan("made==1.0")
        try:
            answer, report, problem = await node.check(plan), await node.build(plan, []), await node.find_problem()
        finally:
            node.kill_all()
        if (user, setting) == (1000, "allowed"):
            (module,) = (tmp_path / "environments" / plan.digest).glob("lib/python*/site-packages/made.py")
            assert module.read_text() == "built = True\n"
            assert (answer.unavailable, report.problem, problem) == ({}, "", "")
        else:
            assert list(answer.unavailable) == ["made"]
            assert "the cluster's nodes cannot get made" in report.problem
            assert ("the node agent is root" in (problem or "")) is (user == 0)
        assert list((tmp_path / "environments").glob(".*")) == []

    asyncio.run(play())


def test_no_kernel_waits_while_another_python_is_fetched(
    config: AgentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is fetched once, and what is half there goes with the agent."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(environments, "_PATIENCE_S", 0.01)
    fetched = tmp_path / "environments" / "pythons"

    async def play() -> None:
        node = _made(msgspec.structs.replace(config, environment_index="http://127.0.0.1:9/simple"))
        first, again = [(await node.packages_with(["3.99", sys.executable])).pythons[0] for _ in range(2)]
        assert "Python 3.99 is not there yet: the nodes look for it, or fetch it" in first.problem
        assert again == first
        assert len(node._looks) == 2
        (_, look) = node._looks["3.99"]
        while not (fetched / ".lock").exists() and not look.done():
            await asyncio.sleep(0.01)
        assert not look.done()
        node.kill_all()
        await asyncio.wait([task for _, task in node._looks.values()])
        assert look.cancelled()

    with silent_index() as url:
        monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", _downloads(tmp_path, url))
        asyncio.run(play())
    assert [each for each in fetched.iterdir() if each.name not in (".temp", ".lock", ".gitignore")] == []
    assert list((fetched / ".temp").glob("*")) == []


def _downloads(folder: Path, url: str) -> str:
    """A list of one Python for uv to fetch."""
    listed = folder / "downloads.json"
    entry = {"name": "cpython", "arch": {"family": platform.machine(), "variant": None}, "os": "linux", "libc": "gnu"}
    entry |= {"major": 3, "minor": 99, "patch": 0, "prerelease": "", "url": f"{url}python.tar.gz", "sha256": "0" * 64}
    entry |= {"variant": None, "build": "20260101"}
    listed.write_text(json.dumps({f"cpython-3.99.0-linux-{platform.machine()}-gnu": entry}))
    return str(listed)


def test_a_python_that_cannot_be_fetched_is_not_tried_for_every_kernel(
    config: AgentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", _downloads(tmp_path, "http://127.0.0.1:9/"))

    async def play() -> None:
        node = _made(msgspec.structs.replace(config, environment_index="http://127.0.0.1:9/simple"))
        await node.packages_with(["3.99"])
        _, look = node._looks["3.99"]
        assert "the nodes have no Python 3.99: " in (await look).problem
        (again,) = (await node.packages_with(["3.99"])).pythons
        assert node._looks["3.99"][1] is look, "it is remembered"
        assert again == await look
        (told,) = await node.try_pythons(["3.99"])
        assert told.problem == again.problem, "doctor says why"
        monkeypatch.setattr(environments, "_TROUBLE_KNOWN_S", 0.0)
        await node.packages_with(["3.99"])
        assert node._looks["3.99"][1] is not look
        node.kill_all()

    asyncio.run(play())


def test_doctor_hears_of_each_other_python_and_of_gpu_libraries(config: AgentConfig, tmp_path: Path) -> None:
    """Nothing is fetched for it, also where uv could."""
    online = msgspec.structs.replace(config, environment_index="http://127.0.0.1:9/simple")
    node = _made(online)
    found, missing, none = asyncio.run(node.try_pythons([sys.executable, "3.99", "/bin/false"]))
    assert (found.version, found.problem) == (platform.python_version(), "")
    assert (missing.version, missing.problem) == ("", "the node has no Python 3.99 yet")
    assert "install it there" in missing.mend
    assert "/bin/false is no Python" in none.problem
    assert list((tmp_path / "environments" / "pythons").iterdir()) == []
    assert asyncio.run(_made(msgspec.structs.replace(config, max_environments=0)).try_pythons(["3.99"])) == []
    owned = asyncio.run(node.owned_versions(["msgs*"]))
    assert (owned["ray"], owned["msgspec"]) == (version("ray"), version("msgspec"))
    assert "numpy" not in owned


def test_a_root_that_others_may_write_to_has_none(config: AgentConfig, tmp_path: Path) -> None:
    plan = _plan("plain==1.0")
    made = tmp_path / "environments" / plan.digest
    made.mkdir(parents=True)
    (made / "environment.json").write_text("{}")
    (tmp_path / "environments").chmod(0o777)
    node = _made(config)
    assert "others may write to it" in asyncio.run(node.build(plan, [])).problem
    with pytest.raises(ClusterError, match="others may write to it"):
        node.servers_of(plan.digest)
    assert asyncio.run(node.list_environments()) == []


def test_a_disk_without_room_for_what_the_notebook_sent_is_named(config: AgentConfig, tmp_path: Path) -> None:
    wheel = make_wheel(
        tmp_path / "sent", "mine", "1.0", {"mine/__init__.py": "", "mine/data": os.urandom(2 << 20).hex()}
    )
    digest = f"sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"
    plan = named_by_content(
        Plan(sys.version.split()[0], "here", [PlannedPackage("mine", "1.0", is_shipped=True, digest=digest)])
    )
    root = tmp_path / "environments"
    root.mkdir(mode=0o700)
    with tmpfs(root, "1m"):
        root.chmod(0o700)
        report = asyncio.run(_made(config).build(plan, [wheel.read_bytes()]))
        assert report.problem == f"cannot build an environment in {root}: No space left on device"
        assert "make room there" in report.hint
        assert [each.name for each in root.iterdir() if each.name.startswith(".")] == []


def test_nobody_else_finds_an_environment_or_writes_to_it(config: AgentConfig, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "plain")
    before = os.umask(0o077)
    try:
        node = _made(config)
        built = asyncio.run(_built(node, _plan("plain==1.0")))
    finally:
        os.umask(before)
    root = tmp_path / "environments"
    modes = {each.name: each.stat().st_mode & 0o777 for each in (root, *root.iterdir())}
    assert modes == {
        "environments": 0o700,
        "cache": 0o700,
        "locks": 0o700,
        "bytecode": 0o700,
        "pythons": 0o700,
        built: 0o555,
    }
    assert next(root.glob("*/lib/*/site-packages/plain/__init__.py")).stat().st_mode & 0o777 == 0o444


async def _built(node: NodeEnvironments, plan: Plan) -> str:
    try:
        assert (await node.build(plan, [])).problem == ""
    finally:
        node.kill_all()
    return plan.digest


def test_what_a_removed_one_had_alone_goes_with_it(
    config: AgentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "_MOST_KEPT", 1)
    for name in ("plain", "other"):
        make_wheel(tmp_path / "wheels", name, "1.0")
    old, new, root = _plan("plain==1.0", "other==1.0"), _plan("other==1.0"), tmp_path / "environments"

    async def play() -> list[str]:
        node = _made(config)
        for plan in (old, new):
            await _built(node, plan)
        os.utime(root / "locks" / old.digest, (time.time() - 50, time.time() - 50))
        return await _made(config).collect(time.time())

    assert asyncio.run(play()) == [old.digest]
    kept = {path.name for path in (root / "cache").rglob("*.py")}
    assert [path.parent.name for path in (root / "cache").rglob("__init__.py")] == ["other"], kept
    assert len(list((root / "bytecode").iterdir())) == 1


def test_one_that_is_used_again_while_others_go_stays(
    config: AgentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To remove one takes a while: a cell may have come for the next."""
    for name in ("plain", "other"):
        make_wheel(tmp_path / "wheels", name, "1.0")
    plans = [_plan("plain==1.0"), _plan("other==1.0")]
    remove = Environments.remove

    async def play() -> None:
        for plan in plans:
            await _built(_made(config), plan)
        node = _made(config)

        async def use_the_other(self: Environments, digest: str) -> None:
            for plan in plans:
                if plan.digest != digest:
                    node.servers_of(plan.digest)
            await remove(self, digest)

        monkeypatch.setattr(Environments, "remove", use_the_other)
        long_ago = time.time() - 500
        for plan in plans:
            os.utime(tmp_path / "environments" / "locks" / plan.digest, (long_ago, long_ago))
        (gone,) = await node.collect(time.time())
        assert [row.digest for row in await node.list_environments()] == [p.digest for p in plans if p.digest != gone]

    asyncio.run(play())


def test_nothing_is_built_under_the_name_of_other_packages(config: AgentConfig) -> None:
    wrong = msgspec.structs.replace(_plan("plain==1.0"), digest=_plan("plain==2.0").digest)

    async def play() -> str:
        return (await _made(config).build(wrong, [])).problem

    assert "named by its packages" in asyncio.run(play())


def test_a_folder_that_others_may_write_to_is_refused(config: AgentConfig, tmp_path: Path) -> None:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments").chmod(0o777)

    async def play() -> str:
        return (await _made(config).check(_plan("plain==1.0"))).problem

    assert "others may write to it" in asyncio.run(play())
