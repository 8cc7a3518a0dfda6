"""Environments are built by the real installer from wheels that the test makes; nothing half-made is ever left."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
import psutil
import pytest
from disks import tmpfs
from wheel_bed import WheelIndex, make_wheel, silent_index

from jupyter_gpu_release.environments.installed import InstalledReader
from jupyter_gpu_release.environments.plan import make_plan
from jupyter_gpu_release.environments.wheels import pack_wheel
from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.node.environments.builder import Environments, ShippedWheel, UnavailablePackagesError
from jupyter_gpu_release.node.environments.installer import Installer, InstallerError, Sources, without_secrets
from jupyter_gpu_release.protocol.environments import Installed, Plan, PlannedPackage, Question, named_by_content

LIMIT_S = 120.0


def planned(*pins: str, shipped: Mapping[str, str] | None = None) -> Plan:
    packages = [PlannedPackage(*pin.split("==")) for pin in pins]
    packages += [PlannedPackage(name, version, is_shipped=True) for name, version in (shipped or {}).items()]
    return named_by_content(Plan(sys.version.split()[0], "here", packages))


class Node:
    """A node with its folder, its cluster's packages, and a folder of wheels."""

    def __init__(self, folder: Path) -> None:
        self.root, self.wheels, self.behind = folder / "environments", folder / "wheels", folder / "cluster"
        for each in (self.root, self.wheels, self.behind):
            each.mkdir()

    def environments(self, sources: Sources | None = None, **variables: str) -> Environments:
        known = Sources(find_links=[str(self.wheels)], offline=True)
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.root), **variables}
        return Environments(self.root, Installer(self.root / "cache", sources or known, environ), [str(self.behind)])

    def build(self, plan: Plan, wheels: Mapping[str, ShippedWheel] | None = None, limit_s: float = LIMIT_S) -> Path:
        return asyncio.run(self.environments().build(plan, wheels or {}, limit_s))

    def left(self) -> list[str]:
        """Names in the root that are no part of its order."""
        return sorted(each.name for each in self.root.iterdir() if each.name.startswith("."))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def say(folder: Path, code: str) -> str:
    python = folder / "bin" / "python"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def test_one_with_all_kinds_of_files(node: Node, tmp_path: Path) -> None:
    make_wheel(node.wheels, "plain", "1.0")
    make_wheel(node.wheels, "tool", "1.0", {"tool.py": "def main(): print('ran')\n"}, scripts={"tool": "tool:main"})
    make_wheel(node.wheels, "space-a", "1.0", {"space/a/__init__.py": ""})
    data = {"table/__init__.py": "", "table/rows.csv": "1,2\n", "table-1.0.data/data/share/table.txt": "shared"}
    make_wheel(node.wheels, "table", "1.0", data)
    mine = make_wheel(tmp_path / "mine", "vision-tools", "0.1", {"vision_tools/__init__.py": "x = 14\n"})
    (node.behind / "space" / "b").mkdir(parents=True)
    (node.behind / "space" / "b" / "__init__.py").write_text("")
    (node.behind / "plain.py").write_text("__version__ = 'of the cluster'\n")
    (node.behind / "below.pth").write_text(str(node.behind / "more") + "\n")
    (node.behind / "more").mkdir()
    (node.behind / "more" / "linked.py").write_text("")
    wheel = ShippedWheel(str(mine), _sha256(mine))
    plan = planned("plain==1.0", "tool==1.0", "space-a==1.0", "table==1.0", shipped={"vision-tools": "0.1"})
    folder = node.build(plan, {"vision-tools": wheel})

    assert folder == node.root / plan.digest
    code = "import plain, space.a, space.b, linked, vision_tools, importlib.resources as r;"
    code += "print(plain.__version__, vision_tools.x, r.files('table').joinpath('rows.csv').read_text().strip())"
    assert say(folder, code) == "1.0 14 1,2"
    assert (folder / "share" / "table.txt").read_text() == "shared"
    ran = subprocess.run([folder / "bin" / "tool"], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "ran\n"
    assert node.left() == []
    built = node.environments().describe(plan.digest)
    assert built.plan == plan
    assert {"plain-1.0", "vision_tools-0.1"} <= built.records.keys()
    writable = [path for path in folder.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o222]
    assert writable == []
    assert node.build(plan) == folder  # it is there: nothing is asked of anybody


def test_bytecode_that_a_wheel_brings_is_not_taken(node: Node) -> None:
    forged = f"shared/__pycache__/broken.{sys.implementation.cache_tag}.pyc"
    files = {"shared/__init__.py": "x = 1\n", "shared/broken.py": "x = = 1\n", forged: "forged"}
    make_wheel(node.wheels, "shared", "1.0", files)
    folder = node.build(planned("shared==1.0"))
    assert not list(folder.glob("lib/*/site-packages/shared/__pycache__/broken.*"))
    assert next(folder.glob("lib/*/site-packages/shared/__pycache__/__init__.*")).stat().st_size > len("forged")
    assert not [path for path in (node.root / "bytecode").iterdir() if path.read_bytes() == b"forged"]


def test_environments_share_what_they_have_in_common(node: Node) -> None:
    make_wheel(node.wheels, "shared", "1.0", {"shared/__init__.py": "x = 1\n", "shared/broken.py": "x = = 1\n"})
    make_wheel(node.wheels, "other", "1.0")
    one, two = node.build(planned("shared==1.0")), node.build(planned("shared==1.0", "other==1.0"))
    for pattern in ("shared/__init__.py", "shared/__pycache__/__init__.*.pyc"):
        inodes = {next(folder.glob(f"lib/*/site-packages/{pattern}")).stat().st_ino for folder in (one, two)}
        assert len(inodes) == 1, pattern
    assert say(two, "import shared; print(shared.x)") == "1"


@pytest.mark.thorough
def test_twenty_that_share_nine_tenths_take_little_more_than_what_differs(node: Node) -> None:
    """Each package takes some 40 KiB of folders and records of its own in each: little beside one of 8 MiB."""
    names = [f"shared-{number}" for number in range(9)]
    for name in [*names, *(f"own-{number}" for number in range(20))]:
        stem = name.replace("-", "_")
        modules = {f"{stem}/part{number}.py": f"x = {number}\n" * 500 for number in range(5)}
        make_wheel(node.wheels, name, files={f"{stem}/data": os.urandom(4 << 20).hex(), **modules})
    for number in range(20):
        node.build(planned(*(f"{name}==1.0" for name in [*names, f"own-{number}"])))
    assert _disk_bytes(node.root) <= 1.05 * _distinct_bytes(node.root.glob("[!.]*/lib/*/site-packages"))


def _disk_bytes(root: Path) -> int:
    """Bytes on the disk, with the installer's cache and everything beside the packages."""
    inodes = {facts.st_ino: facts.st_blocks * 512 for facts in map(Path.lstat, root.rglob("*"))}
    return sum(inodes.values())


def _distinct_bytes(folders: Iterable[Path]) -> int:
    files = {path.stat().st_ino: path for folder in folders for path in folder.rglob("*") if path.is_file()}
    contents = (path.read_bytes() for path in files.values())
    return sum({hashlib.sha256(content).digest(): len(content) for content in contents}.values())


def test_packages_that_are_fetched_are_counted(node: Node) -> None:
    """So is what came for another environment; from wheels and from an index."""
    for name in ("dotted-name", "plain", "other"):
        make_wheel(node.wheels, name, "1.0")
    both = planned("dotted-name==1.0", "plain==1.0", "other==1.0")
    environments = node.environments()
    assert environments.count_fetched(both) == 0
    node.build(planned("dotted-name==1.0"))
    assert environments.count_fetched(both) == 1
    with WheelIndex(node.wheels) as index:
        from_index = node.environments(Sources(index=index.url()))
        asyncio.run(from_index.build(planned("plain==1.0"), {}, LIMIT_S))
    assert environments.count_fetched(both) == 2
    assert environments.count_fetched(planned("plain==1.1", shipped={"mine": "0.1"})) == 1


def test_tracebacks_name_the_files_where_they_are(node: Node) -> None:
    make_wheel(node.wheels, "shared", "1.0", {"shared/__init__.py": "def f(): pass\n"})
    folder = node.build(planned("shared==1.0"))
    assert say(folder, "import shared; print(shared.f.__code__.co_filename == shared.__file__)") == "True"


def test_what_cannot_be_had_is_named_with_the_installers_words(node: Node) -> None:
    make_wheel(node.wheels, "plain", "1.0")
    make_wheel(node.wheels, "elsewhere", "1.0", tag="cp311-cp311-win_amd64")
    with pytest.raises(UnavailablePackagesError, match="cannot get elsewhere, nowhere") as caught:
        node.build(planned("plain==1.0", "nowhere==9.9", "elsewhere==1.0"))
    assert sorted(caught.value.packages) == ["elsewhere", "nowhere"]
    assert "nowhere" in caught.value.packages["nowhere"]
    said = caught.value.packages["elsewhere"]
    assert said.startswith("Because elsewhere==1.0 has no wheels with a matching platform tag"), said
    assert caught.value.words in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.packages) == (str(caught.value), caught.value.packages)
    assert node.left() == []


def test_a_wheel_of_other_content_is_refused(node: Node, tmp_path: Path) -> None:
    mine = make_wheel(tmp_path / "mine", "tools", "0.1")
    with pytest.raises(InstallerError, match="its hash differs"):
        node.build(planned(shipped={"tools": "0.1"}), {"tools": ShippedWheel(str(mine), "sha256:" + "0" * 64)})
    assert node.left() == []


def test_a_wheel_that_is_not_the_one_that_the_index_announces_is_named(node: Node) -> None:
    make_wheel(node.wheels, "plain", "1.0")
    make_wheel(node.wheels, "other", "1.0")
    with WheelIndex(node.wheels, digests={"other": "0" * 64}) as index:
        environments = node.environments(Sources(index=index.url()))
        with pytest.raises(InstallerError, match=r"its hash differs(?s:.*)other==1\.0") as caught:
            asyncio.run(environments.build(planned("plain==1.0", "other==1.0"), {}, LIMIT_S))
    assert "a proxy" in caught.value.hint
    assert node.left() == []


@pytest.mark.parametrize("pins", [["plain==1.0"], ["plain==1.0", "other==1.0"]])
def test_an_index_out_of_reach_is_no_fault_of_the_packages(node: Node, pins: list[str]) -> None:
    environments = node.environments(Sources(index="http://127.0.0.1:9/simple/"), UV_HTTP_RETRIES="0")
    for asked in (environments.build(planned(*pins), {}, LIMIT_S), environments.find_unavailable(planned(*pins), 60)):
        with pytest.raises(InstallerError, match="the node's index does not answer") as caught:
            asyncio.run(asked)
        assert not isinstance(caught.value, UnavailablePackagesError)
    question = Question(pins, [], [], [])
    with pytest.raises(InstallerError, match="the node's index does not answer"):
        asyncio.run(environments.resolve(question, LIMIT_S))
    assert node.left() == []


@pytest.mark.parametrize("stays_full", [False, True])
def test_a_disk_that_fills_in_the_middle_of_a_build_is_named_and_nothing_is_left(
    node: Node, tmp_path: Path, stays_full: bool
) -> None:
    """The installer tidies up what it has unpacked, unless somebody else has filled the disk meanwhile."""
    make_wheel(node.wheels, "big", "1.0", {"big/__init__.py": "", "big/data": os.urandom(6 << 20).hex()})
    make_wheel(node.wheels, "plain", "1.0")
    with tmpfs(node.root, "8m"):
        if stays_full:
            node.build(planned("plain==1.0"))
            _fill(node.root / "filler")
        for each in (planned("plain==1.0", "big==1.0"), planned("big==1.0")):
            with pytest.raises(ClusterError) as caught:
                node.build(each)
            assert "make room there" in caught.value.hint, caught.value
            assert node.left() == []
        (node.root / "filler").unlink(missing_ok=True)
        assert node.build(planned("plain==1.0")).is_dir()


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as written, contextlib.suppress(OSError):
        while True:
            written.write(b"x" * 4096)


def test_a_build_that_hangs_ends_at_its_limit(node: Node) -> None:
    with silent_index() as url:
        environments = node.environments(Sources(index=url))
        with pytest.raises(ClusterError, match="not ready after 2 s"):
            asyncio.run(environments.build(planned("plain==1.0"), {}, 2.0))
    assert node.left() == []


def test_a_cancelled_build_leaves_nothing_and_the_one_that_waits_builds(node: Node) -> None:
    make_wheel(node.wheels, "plain", "1.0")
    plan = planned("plain==1.0")

    async def play(url: str) -> Path:
        first = asyncio.create_task(node.environments(Sources(index=url)).build(plan, {}, LIMIT_S))
        while not node.left():
            await asyncio.sleep(0.01)
        second = asyncio.create_task(node.environments().build(plan, {}, LIMIT_S))
        await asyncio.sleep(0.3)
        assert not second.done()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    with silent_index() as url:
        assert asyncio.run(play(url)) == node.root / plan.digest
    assert node.left() == []


def test_two_that_ask_build_it_once(node: Node) -> None:
    with WheelIndex(node.wheels) as index:
        make_wheel(node.wheels, "plain", "1.0")
        plan = planned("plain==1.0")

        async def both() -> list[Path]:
            builds = [node.environments(Sources(index=index.url())).build(plan, {}, LIMIT_S) for _ in range(3)]
            return await asyncio.gather(*builds)

        assert set(asyncio.run(both())) == {node.root / plan.digest}
        assert [path for path, _ in index.asked].count("/simple/plain/") == 1


def test_what_a_killed_process_left_goes_with_the_next_build(node: Node) -> None:
    make_wheel(node.wheels, "plain", "1.0")
    plan = planned("plain==1.0")
    left = node.root / f".building-{plan.digest}-dead"
    left.mkdir()
    (left / "file").write_text("")
    left.chmod(0o500)
    node.build(plan)
    assert node.left() == []


_BUILDER = """
import asyncio, sys
from pathlib import Path
import msgspec
from jupyter_gpu_release.node.environments.builder import Environments
from jupyter_gpu_release.node.environments.installer import Installer, Sources
from jupyter_gpu_release.protocol.environments import Plan
root, url, plan = Path(sys.argv[1]), sys.argv[2], msgspec.json.decode(sys.argv[3], type=Plan)
asyncio.run(Environments(root, Installer(root / "cache", Sources(index=url)), []).build(plan, {}, 100))
"""


def test_a_builder_that_is_killed_keeps_others_away_until_its_installer_has_ended(node: Node) -> None:
    make_wheel(node.wheels, "plain", "1.0")
    plan = planned("plain==1.0")

    def installers() -> list[psutil.Process]:
        """Those that install into this environment, without what they ask its interpreter."""
        found = [(each, each.info["cmdline"] or []) for each in psutil.process_iter(["name", "cmdline"])]
        named = f".building-{plan.digest}"
        return [
            each for each, argv in found if each.info["name"] == "uv" and "install" in argv and named in " ".join(argv)
        ]

    with silent_index() as url:
        argv = [sys.executable, "-c", _BUILDER, str(node.root), url, msgspec.json.encode(plan).decode()]
        builder = subprocess.Popen(argv)
        try:
            _wait_until(lambda: bool(installers()))
        finally:
            builder.kill()
            builder.wait()
        left = installers()
        assert left != []
        with pytest.raises(ClusterError, match="not ready after 1 s"):
            node.build(plan, limit_s=1.0)
        for each in left:
            each.kill()
        _wait_until(lambda: not installers())
        assert node.build(plan).is_dir()
    assert node.left() == []


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_credentials_are_used_and_never_said(node: Node) -> None:
    make_wheel(node.wheels, "plain", "1.0")
    with WheelIndex(node.wheels) as index:
        environments = node.environments(Sources(index=index.url("ann:s3cret")))
        folder = asyncio.run(environments.build(planned("plain==1.0"), {}, LIMIT_S))
        with pytest.raises(InstallerError) as caught:
            asyncio.run(environments.build(planned("nowhere==1.0"), {}, LIMIT_S))
        assert any(authorization.startswith("Basic ") for _, authorization in index.asked)
    assert "s3cret" not in str(caught.value) + json.dumps(getattr(caught.value, "packages", {}))
    told = [path for path in folder.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    assert told == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at https://ann:x@host/simple/a now", "at https://host/simple/a now"),
        ("(`https://host/a.whl?token=x#y`)", "(`https://host/a.whl`)"),
        ("nothing?really", "nothing?really"),
    ],
)
def test_words_without_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_a_disk_that_refuses_is_named(node: Node) -> None:
    (node.root / "locks").write_text("in the way")
    with pytest.raises(ClusterError, match=f"cannot build an environment in {node.root}"):
        node.build(planned("plain==1.0"))


def test_one_that_is_removed_can_be_built_again(node: Node) -> None:
    make_wheel(node.wheels, "plain", "1.0")
    plan = planned("plain==1.0")
    node.build(plan)
    asyncio.run(node.environments().remove(plan.digest))
    assert node.environments().find(plan.digest) is None
    assert node.left() == []
    assert node.build(plan).is_dir()


@pytest.mark.parametrize("is_allowed", [False, True])
def test_source_builds_are_the_operators_to_allow(node: Node, is_allowed: bool) -> None:
    """Where they are, it is looked for what builds it, which is not here."""
    _make_sdist(node.wheels / "made-1.0.tar.gz")
    sources = Sources(find_links=[str(node.wheels)], offline=True, source_builds=is_allowed)
    with pytest.raises(InstallerError) as caught:
        asyncio.run(node.environments(sources).build(planned("made==1.0"), {}, LIMIT_S))
    assert ("setuptools" in caught.value.words) == is_allowed
    assert node.left() == []


def test_versions_are_found_beside_the_clusters_own(node: Node) -> None:
    for version in ("1.0", "2.0", "3.0"):
        make_wheel(node.wheels, "base", version)
    make_wheel(node.wheels, "layer", "1.0", requires=["base", "torch>=2"])
    question = Question(["layer"], ["base<3"], ["torch"], ["base==1.0"])
    assert asyncio.run(node.environments().resolve(question, LIMIT_S)) == {"base": "1.0", "layer": "1.0"}
    without = Question(["layer"], ["base<3"], ["torch"], [])
    assert asyncio.run(node.environments().resolve(without, LIMIT_S)) == {"base": "2.0", "layer": "1.0"}
    with pytest.raises(InstallerError, match="layer cannot be had beside the cluster's own packages"):
        asyncio.run(node.environments().resolve(Question(["layer"], ["base>3"], ["torch"], []), LIMIT_S))
    assert node.left() == []


def test_two_packages_that_conflict_are_named_with_what_they_disagree_on(node: Node) -> None:
    for version in ("1.0", "2.0"):
        make_wheel(node.wheels, "base", version)
    make_wheel(node.wheels, "older", requires=["base<2"])
    make_wheel(node.wheels, "newer", requires=["base>=2"])
    with pytest.raises(InstallerError, match="older, newer cannot be had together beside") as caught:
        asyncio.run(node.environments().resolve(Question(["older", "newer"], [], [], []), LIMIT_S))
    said = " ".join(caught.value.words.split())
    assert "base<2" in said
    assert "base>=2" in said
    assert "ask for other versions" in caught.value.hint
    assert node.left() == []


def _sha256(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _make_sdist(path: Path) -> None:
    import io
    import tarfile

    text = b"from setuptools import setup\nsetup(name='made', version='1.0')\n"
    info = b"Metadata-Version: 2.1\nName: made\nVersion: 1.0\n"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("made-1.0/setup.py", text), ("made-1.0/PKG-INFO", info)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_a_real_editable_install_goes_all_the_way(node: Node, tmp_path: Path) -> None:
    """From the notebook's folders to a cell's: read, planned, packed, built."""
    project = tmp_path / "project"
    (project / "src" / "vision").mkdir(parents=True)
    (project / "src" / "vision" / "__init__.py").write_text("def main(): print('seen')\n")
    (project / "src" / "vision" / "table.csv").write_text("1,2")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "vision-tools"\nversion = "0.1"\nscripts = {vision = "vision:main"}\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["src/vision"]\n[tool.hatch.build]\ndev-mode-dirs = ["src"]\n'
    )
    prefix = tmp_path / "prefix"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--prefix", prefix]
    subprocess.run([*pip, "-e", project], check=True, timeout=100)
    site = next(prefix.glob("lib/python*/site-packages"))
    notebook = InstalledReader([str(site)]).read()
    plan = make_plan(notebook, Installed.of(notebook.python, notebook.platform, notebook.markers, []))
    (mine,) = plan.packages
    assert (mine.name, mine.is_shipped, mine.files) == ("vision-tools", True, 2)
    wheel = pack_wheel(next(site.glob("*.dist-info")), mine.name, mine.version, notebook.distributions[0].source)
    path = tmp_path / wheel.file_name
    path.write_bytes(wheel.content)
    folder = node.build(plan, {mine.name: ShippedWheel(str(path), wheel.digest)})
    assert say(folder, "import vision; print(open(vision.__file__[:-11] + 'table.csv').read())") == "1,2"
    ran = subprocess.run([folder / "bin" / "vision"], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "seen\n"
