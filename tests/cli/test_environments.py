"""``jupyter gpu environments``: what is shown of the nodes' answers, and what of a removal."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.cli.admin import environments as command
from jupyter_gpu_release.cli.parser import parse
from jupyter_gpu_release.errors import (
    ClusterError,
    ConflictError,
    GatewayUnavailableError,
    GpuReleaseError,
    RequestError,
)
from jupyter_gpu_release.presentation.plain_text import without_colours
from jupyter_gpu_release.protocol.environments import (
    BuildProgress,
    EnvironmentBuilt,
    EnvironmentRow,
    EnvironmentsDocument,
    Plan,
    PlannedPackage,
)
from jupyter_gpu_release.submission.packages import CellPackages

_PACKAGES = [PlannedPackage(name, "1.0", is_shipped=name == "mine") for name in ("a", "b", "c", "d", "mine")]


def _row(digest: str, host: str = "gpu1", *, used_ago_s: float = 60.0) -> EnvironmentRow:
    used_at, memory_bytes = time.time() - used_ago_s, 1 << 29 if host == "gpu2" else 0
    return EnvironmentRow(digest * 8, host, "3.11.9", _PACKAGES, used_at, bool(memory_bytes), memory_bytes)


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch) -> EnvironmentsDocument:
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s)  # what is "1 min ago" stays it
    made = EnvironmentsDocument(
        1, [_row("abcd"), _row("abcd", "gpu2", used_ago_s=3600.0), _row("ab12")], ["gpu3: gone"]
    )
    gateway = SimpleNamespace(environments=lambda: made, remove_environment=lambda _: made)

    @contextlib.contextmanager
    def opened(**_: Any) -> Iterator[Any]:
        yield gateway

    monkeypatch.setattr(command, "open_gateway", opened)
    monkeypatch.setenv("COLUMNS", "160")
    return made


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert command.environments(parse(["environments", *words])) == 0
    return " ".join(capsys.readouterr().out.split())


def test_each_environment_is_a_line_with_its_nodes(
    document: EnvironmentsDocument, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said(capsys)
    assert "abcdabcdabcd a 1.0, b 1.0, c 1.0, d 1.0 and 1 more gpu1, gpu2 1 min ago" in said
    assert "gpu3: gone" in said
    assert said == _said(capsys, "list")
    assert [row["host"] for row in json.loads(_said(capsys, "list", "--json"))["environments"]] == [
        "gpu1",
        "gpu2",
        "gpu1",
    ]


def test_one_is_shown_by_the_beginning_of_its_digest(
    document: EnvironmentsDocument, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said(capsys, "show", "abc")
    assert "Python 3.11.9, 5 packages" in said
    assert "a 1.0 index" in said
    assert "mine 1.0 the notebook's" in said
    assert "gpu2 1 h ago a fork server runs (512 MiB of memory)" in said
    for digest, count in (("ab", "2 environments"), ("ff", "0 environments")):
        with pytest.raises(RequestError, match=f"the digests of {count} begin so"):
            command.environments(parse(["environments", "show", digest]))


def test_what_stays_after_a_removal_is_said(document: EnvironmentsDocument, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConflictError, match="gpu1 uses it; gpu2 uses it; gpu1 uses it; gpu3: gone"):
        command.environments(parse(["environments", "remove", "abcd"]))
    document.environments.clear()
    document.problems.clear()
    assert "It is removed" in _said(capsys, "remove", "abcd")
    assert "No node has an environment" in _said(capsys)


def test_a_named_one_is_built_on_all_nodes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plans = [Plan("3.11.9", "here", _PACKAGES[:1], digest="abcd" * 8), None]
    monkeypatch.setattr(command, "named_packages", lambda *_: CellPackages(plans.pop(0)))
    monkeypatch.setattr(command, "open_gateway", lambda **_: contextlib.nullcontext(SimpleNamespace(**_GATEWAY)))
    said = _said(capsys, "build", "vision")
    assert said == "vision: a 1.0 abcdabcdabcd is built (gpu1, gpu2) · 2 s"
    assert "there is nothing to build" in _said(capsys, "build", "vision")


_GATEWAY = {"build_environment": lambda _: EnvironmentBuilt(["gpu1", "gpu2"], 2.0)}


class _Building:
    """A gateway whose nodes are done when what they have was asked so often."""

    def __init__(self, *fetched: int | None, error: GpuReleaseError | None = None) -> None:
        self._left = list(fetched)
        self._error = error
        self._done = threading.Event()

    def build_environment(self, _: Plan) -> EnvironmentBuilt:
        assert self._done.wait(60)
        if self._error is not None:
            raise self._error
        return EnvironmentBuilt(["gpu1"], 2.0)

    def build_progress(self, _: Plan) -> BuildProgress:
        if not self._left:
            self._done.set()
            raise GatewayUnavailableError("it has ended")
        return BuildProgress(self._left.pop(0))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_build_shows_how_many_packages_are_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    """A bar for people, and a line a change for a log."""
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    plan = Plan("3.11.9", "here", _PACKAGES, digest="abcd" * 8)
    gateway = _Building(None, 1, 1, 3, 5)
    monkeypatch.setattr(command, "_LOOK_S", 0.001)
    monkeypatch.setattr(command, "named_packages", lambda *_: CellPackages(plan))
    monkeypatch.setattr(command, "open_gateway", lambda **_: contextlib.nullcontext(gateway))
    assert command.environments(parse(["environments", "build", "vision"])) == 0
    shown = capsys.readouterr()
    assert "is built (gpu1)" in shown.out
    if is_terminal:
        assert "\x1b[" in shown.err
        assert "5/5" in without_colours(shown.err)
    else:
        assert shown.err == "1 of 5 packages\n3 of 5 packages\n5 of 5 packages\n"


def test_a_build_that_fails_says_why_and_leaves_no_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan("3.11.9", "here", _PACKAGES, digest="abcd" * 8)
    gateway = _Building(2, error=ClusterError("gpu1: the cluster's nodes cannot get b"))
    monkeypatch.setattr(command, "_LOOK_S", 0.001)
    monkeypatch.setattr(command, "named_packages", lambda *_: CellPackages(plan))
    monkeypatch.setattr(command, "open_gateway", lambda **_: contextlib.nullcontext(gateway))
    with pytest.raises(ClusterError, match="cannot get b"):
        command.environments(parse(["environments", "build", "vision"]))
    assert capsys.readouterr().err == "2 of 5 packages\n"
    assert not [each for each in threading.enumerate() if each.name == command.PROGRESS_THREAD]
