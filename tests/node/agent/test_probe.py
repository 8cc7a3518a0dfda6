"""Limits that a node tells of itself."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from jupyter_gpu_release.node.agent.probe import most_processes


def _host(root: Path, groups: str, **limits: str) -> Path:
    """A host whose process is in ``groups``; ``limits``: by folder below the cgroups, ``__`` for a slash."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in limits.items():
        folder = root / "sys/fs/cgroup" / name.strip("_").replace("__", "/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pids.max").write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "most"),
    [
        ("0::/system.slice/ray.service\n", {"system.slice": "max", "system.slice__ray.service": "900"}, 900),
        ("0::/kubepods/pod1/c1\n", {"kubepods": "9000", "kubepods__pod1": "700", "kubepods__pod1__c1": "max"}, 700),
        ("0::/\n", {"_": "800"}, 800),
        ("5:memory:/a\n4:pids:/docker/1\n0::/\n", {"pids": "600"}, 600),  # the container sees no group above its own
        ("0::/\n", {}, None),
        ("", {"_": "800"}, None),
    ],
)
def test_the_least_limit_on_processes_counts(
    tmp_path: Path, groups: str, limits: dict[str, str], most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert most_processes(_host(tmp_path, groups, **limits)) == most


@pytest.mark.parametrize(("uid", "most"), [(1000, 500), (0, 900)])
def test_a_users_own_limit_counts_but_not_roots(
    tmp_path: Path, uid: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (500, 1000))
    monkeypatch.setattr("os.getuid", lambda: uid)
    assert most_processes(_host(tmp_path, "0::/\n", _="900")) == most
