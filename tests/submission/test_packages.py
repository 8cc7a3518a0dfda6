"""Which environment a cell needs: decided once for each state of the notebook's packages."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from wheel_bed import install, make_wheel

from jupyter_gpu_release.environments import wheels
from jupyter_gpu_release.environments.installed import InstalledReader
from jupyter_gpu_release.errors import ClusterError, ConflictError, MissingPackageError, OptionError
from jupyter_gpu_release.options.run_options import RunOptions, build_options
from jupyter_gpu_release.protocol.environments import (
    UNKNOWN,
    ClusterPackages,
    Distribution,
    Installed,
    NamedEnvironment,
    OtherPython,
    PackagesAnswer,
    Plan,
    Question,
    Versions,
    WheelSent,
)
from jupyter_gpu_release.protocol.session import Welcome
from jupyter_gpu_release.submission import packages
from jupyter_gpu_release.submission.packages import NotebookPackages

_HASH = f"sha256:{'0' * 64}"


class Cluster:
    """A gateway whose nodes have ``installed``; ``unavailable`` is what their index lacks."""

    def __init__(self, *installed: Distribution) -> None:
        self.installed = list(installed)
        self.unavailable: dict[str, str] = {}
        self.problem = ""
        self.has_nodes = True
        self.checks: list[Plan] = []
        self.wheels: dict[str, bytes] = {}
        self.versions = Versions()
        self.python = ""
        self.pythons: list[OtherPython] = []
        self.locked = NamedEnvironment("locked", ["added==1.1", "torch==2"], True, {"added": [_HASH], "torch": [_HASH]})

    @contextlib.contextmanager
    def opened(self) -> Iterator[Cluster]:
        yield self

    def record(self) -> Installed:
        mine = InstalledReader([]).read()
        return Installed.of(self.python or mine.python, mine.platform, mine.markers, self.installed)

    def packages(self) -> ClusterPackages:
        if not self.has_nodes:
            raise ConflictError("no node of the cluster builds environments now")
        named = [NamedEnvironment("vision", ["added>=1"]), self.locked, NamedEnvironment("whole", [], interpreter="/e")]
        return ClusterPackages(self.record(), ["acme-*"], named, self.pythons)

    def check_packages(self, plan: Plan) -> PackagesAnswer:
        self.checks.append(plan)
        names = {each.name for each in plan.packages if not each.is_shipped}
        lacking = [each.digest for each in plan.packages if each.is_shipped]
        gone = {name: words for name, words in self.unavailable.items() if name in names}
        return PackagesAnswer(False, gone, lacking, self.problem, "do this" if self.problem else "")

    def resolve_packages(self, question: Question) -> Versions:
        return self.versions

    def send_wheel(self, digest: str, content: bytes) -> WheelSent:
        self.wheels[digest] = content
        return WheelSent(digest, len(content))


@dataclass
class Needs:
    imports: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    environment: Plan | None = None


class Bed:
    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site-packages"
        self.site.mkdir()
        self.cluster = Cluster()
        self.packages = NotebookPackages([str(self.site)])
        self.said: list[str] = []

    def have(self, name: str, version: str = "1.0", **more: object) -> None:
        install(make_wheel(self.folder / "wheels", name, version, **more), self.site)  # type: ignore[arg-type]

    def ask(self, *imports: str, digest: str = "", python: str = "", **options: str) -> Needs:
        needs = Needs(list(imports), list(imports))
        asked: RunOptions = build_options({name: [text] for name, text in options.items()})
        welcome = Welcome(1, "v", "ann", True, 1, "/store", packages=digest or self.cluster.record().digest)
        welcome = msgspec.structs.replace(welcome, python=python)
        self.said = self.packages.add_to(needs, asked, welcome, self.cluster.opened)
        return needs


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def _pins(needs: Needs) -> list[str]:
    assert needs.environment is not None
    return [f"{each.name}=={each.version}" for each in needs.environment.packages]


def test_where_nothing_differs_nobody_is_asked(bed: Bed) -> None:
    bed.have("plain")
    mine = InstalledReader([str(bed.site)]).read()
    assert bed.ask("plain", digest=mine.digest).environment is None
    assert bed.ask("plain", environment="cluster").environment is None
    assert bed.cluster.checks == []


def test_what_the_cluster_lacks_is_planned_once_and_again_after_an_installation(bed: Bed) -> None:
    bed.have("plain")
    first = bed.ask("plain", "elsewhere")
    assert (_pins(first), first.imports) == (["plain==1.0"], ["elsewhere"])
    assert bed.ask("plain").environment == first.environment
    assert len(bed.cluster.checks) == 1
    bed.have("other")
    assert _pins(bed.ask()) == ["other==1.0", "plain==1.0"]


def test_a_cluster_without_nodes_is_asked_again_by_the_next_cell(bed: Bed) -> None:
    bed.have("plain")
    bed.cluster.has_nodes = False
    assert bed.ask("plain", digest=UNKNOWN).environment is None
    with pytest.raises(ConflictError, match="no node of the cluster"):
        bed.ask(digest=UNKNOWN, pip="plain")
    bed.cluster.has_nodes = True
    assert _pins(bed.ask("plain", digest=UNKNOWN)) == ["plain==1.0"]


def test_a_pure_package_that_no_index_has_is_sent(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.have("mine-alone")
    bed.cluster.unavailable = {"mine-alone": "not found"}
    needs = bed.ask("mine_alone")
    assert needs.environment is not None
    (package,) = needs.environment.packages
    assert package.is_shipped
    assert list(bed.cluster.wheels) == [package.digest]
    monkeypatch.setattr(wheels, "MOST_BYTES", 0)
    bed.have("mine-large")
    bed.cluster.unavailable["mine-large"] = "not found"
    with pytest.raises(MissingPackageError, match="imports mine_large"):
        bed.ask("mine_large")


def test_of_packages_that_are_too_much_to_send_together_the_last_stays_here(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_MOST_SENT_BYTES", 4000)
    for name in ("mine-a", "mine-b", "mine-c"):
        bed.have(name, files={f"{name.replace('-', '_')}.py": "#" * 800})
        bed.cluster.unavailable[name] = "not found"
    needs = bed.ask("mine_a")
    assert _pins(needs) == ["mine-a==1.0", "mine-b==1.0"]
    assert len(bed.cluster.wheels) == 2
    with pytest.raises(MissingPackageError, match=r"own packages are more than 3\.9 KiB") as caught:
        bed.ask("mine_c")
    assert "have the operator put a wheel" in caught.value.hint


def test_what_cannot_be_had_fails_only_the_cell_that_imports_it(bed: Bed) -> None:
    bed.have("compiled", tag="cp39-cp39-linux_x86_64")
    bed.have("acme-core", "2.0")
    bed.cluster.unavailable = {"compiled": "no wheel for this platform"}
    bed.cluster.installed = [Distribution("acme-core", "1.0", imports=["acme_core"])]
    assert bed.ask("json").environment is None
    with pytest.raises(MissingPackageError, match=r"imports compiled, .* compiled 1\.0: no wheel for this platform"):
        bed.ask("compiled")
    bed.ask("acme_core")
    assert bed.said == ["acme-core 2.0: it is the cluster's to install, and cells get the cluster's 1.0"]
    bed.ask("acme_core")
    assert bed.said == [], "once"


def test_where_no_node_can_build_the_reason_is_said_to_who_needs_it(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.have("plain")
    bed.cluster.problem = "uv is not installed"
    assert bed.ask("json").environment is None
    with pytest.raises(MissingPackageError, match="no node can build an environment: uv is not installed") as caught:
        bed.ask("plain")
    assert caught.value.hint == "do this"
    monkeypatch.setattr(packages, "_KNOWN_S", -1.0)
    asked = len(bed.cluster.checks)
    bed.ask("json")
    assert len(bed.cluster.checks) == asked, "not for each cell"


def test_packages_that_are_written_down(bed: Bed) -> None:
    bed.cluster.versions = Versions({"added": "1.1", "below": "2.0"})
    needs = bed.ask("added", pip="added>=1")
    assert (_pins(needs), needs.imports) == (["added==1.1", "below==2.0"], [])
    assert bed.ask(digest=UNKNOWN).environment is None, "of this cell alone"
    bed.cluster.versions = Versions(problem="no such thing", mend="look")
    with pytest.raises(ClusterError, match="no such thing"):
        bed.ask(pip="nowhere")
    bed.cluster.versions, bed.cluster.unavailable = Versions({"gone": "1"}), {"gone": "no wheel"}
    with pytest.raises(MissingPackageError, match="cannot get gone: no wheel"):
        bed.ask(pip="gone")
    with pytest.raises(OptionError, match="a URL or a path"):
        bed.ask(pip="https://ann:secret@example.org/x.whl")


def test_what_is_written_down_may_be_imported_beside_the_notebooks_own_packages(bed: Bed) -> None:
    """Nobody here knows its modules' names: a cell that imports one is not refused."""
    bed.have("plain")
    bed.cluster.versions = Versions({"scikit-added": "1.1"})
    needs = bed.ask("plain", "skadded", pip="scikit-added")
    assert (_pins(needs), needs.imports) == (["plain==1.0", "scikit-added==1.1"], [])


def test_a_named_environment_takes_the_place_of_the_notebooks_packages(bed: Bed) -> None:
    bed.have("plain")
    bed.cluster.installed = [Distribution("below", "2.0", imports=["below"])]
    bed.cluster.versions = Versions({"added": "1.1", "below": "2.0"})
    needs = bed.ask("added", environment="vision")
    assert (_pins(needs), needs.imports) == (["added==1.1"], [])
    assert bed.ask("added", environment="vision").environment == needs.environment
    assert len(bed.cluster.checks) == 1
    with pytest.raises(OptionError, match="--environment text: there is none by this name") as caught:
        bed.ask(environment="text")
    assert caught.value.hint == "you may use: auto, cluster, locked, vision, whole"
    bed.cluster.problem = "uv is not installed"
    with pytest.raises(MissingPackageError, match=r"--environment vision: added 1\.1: no node can build"):
        bed.ask(environment="vision", pip="more")


def test_a_locked_environment_has_its_hashes_and_what_stays_the_clusters_is_said(bed: Bed) -> None:
    bed.cluster.installed = [Distribution("torch", "3.0", imports=["torch"])]
    needs = bed.ask("added", "torch", environment="locked")
    assert _pins(needs) == ["added==1.1"]
    assert needs.environment is not None
    assert needs.environment.packages[0].hashes == [_HASH]
    assert bed.said == ["torch 2: it is the cluster's to install, and cells get the cluster's 3.0"]
    bed.cluster.unavailable = {"added": "no wheel"}
    with pytest.raises(MissingPackageError, match="the cluster's nodes cannot get added: no wheel"):
        _again(bed).ask(environment="locked")


def _again(bed: Bed) -> Bed:
    """The same for a kernel that knows nothing yet."""
    bed.packages = NotebookPackages([str(bed.site)])
    return bed


def test_another_python_is_said_once_also_where_no_environments_are_built(bed: Bed) -> None:
    bed.ask(python="3.99.1", environment="cluster")
    (said,) = bed.said
    assert said.startswith("the cluster runs Python 3.99, this kernel 3.")
    assert "(use a kernel with Python 3.99, " in said
    bed.ask(python="3.99.2")
    assert bed.said == []
    bed.ask(python=platform.python_version())
    assert bed.said == []


def test_a_notebook_of_another_python_gets_a_whole_environment_where_the_nodes_have_it(bed: Bed) -> None:
    bed.have("plain")
    bed.cluster.python = "3.99.1"
    mine = InstalledReader([]).read()
    bare = Installed.of(mine.python, mine.platform, mine.markers, [])
    bed.cluster.pythons = [OtherPython("/named/alone", bare)]
    assert bed.ask("json", python="3.99.1").environment is None
    assert "the operator may offer Python 3." in bed.said[0]
    bed.cluster.pythons += [OtherPython("3.98", problem="no Python 3.98", is_for_all=True)]
    _again(bed).ask("json", python="3.99.1")
    assert bed.said[0].endswith(": no Python 3.98)")
    bed.cluster.pythons += [OtherPython("/opt/python", bare, is_for_all=True)]
    needs = _again(bed).ask("plain", python="3.99.1")
    assert needs.environment is not None
    assert (needs.environment.interpreter, _pins(needs), bed.said) == ("/opt/python", ["plain==1.0"], [])


def test_a_named_folder_has_its_packages_and_what_ranks_require(bed: Bed) -> None:
    ours = Distribution("jupyter-gpu-release", "0.1", requires=["added>=1"])
    bed.cluster.installed = [ours]
    with pytest.raises(MissingPackageError, match="no node has told of its Python"):
        bed.ask(environment="whole")
    bed.cluster.pythons = [OtherPython("/e", problem="/e is no Python of the nodes", mend="correct it")]
    with pytest.raises(MissingPackageError, match="--environment whole: /e is no Python"):
        bed.ask(environment="whole")
    mine = InstalledReader([]).read()
    there = [Distribution("torch", "2.4", imports=["torch"]), Distribution("added", "1.0", imports=["added"])]
    bed.cluster.pythons = [OtherPython("/e", Installed.of("3.99.0", mine.platform, mine.markers, there))]
    bed.cluster.versions = Versions({"added": "1.0"})
    needs = bed.ask("torch", environment="whole")
    assert needs.environment is not None
    assert (needs.environment.packages, needs.imports) == ([], []), "all of it is there"
    assert needs.environment.digest
    assert "the cluster runs Python 3.99" in bed.said[0]
    too_old = [Distribution("added", "0.9", imports=["added"])]
    bed.cluster.pythons = [OtherPython("/e", Installed.of("3.99.0", mine.platform, mine.markers, too_old))]
    bed.cluster.versions = Versions({"added": "1.1"})
    assert _pins(_again(bed).ask("added", environment="whole")) == ["added==1.1"]
