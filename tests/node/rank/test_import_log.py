"""Modules that a cell has to import itself, in an order in which they may be imported ahead."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_release.node.agent.prepared_servers import PreparedServers
from jupyter_gpu_release.node.rank import import_log
from jupyter_gpu_release.node.rank.import_log import ImportLog
from jupyter_gpu_release.submission.modules import LocalModules

_MODULES = {
    "sets_up": "def use():\n    import jgr_reads_it",
    "reads_it": "",
    "in_turn": "import jgr_reads_it",
    "own": "import jgr_sets_up",
}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImportLog]:
    """One of a process in which all of these are installed but for the last."""
    for folder in (installed := tmp_path / "installed", own := tmp_path / "own"):
        folder.mkdir()
        monkeypatch.syspath_prepend(str(folder))
    for name, source in _MODULES.items():
        (own if name == "own" else installed).joinpath(f"jgr_{name}.py").write_text(source)
    monkeypatch.setattr(import_log, "package_folders", lambda: [str(installed)])
    watch = ImportLog()
    watch.start_watching()
    yield watch
    watch.stop_watching()
    for name in _MODULES:
        sys.modules.pop(f"jgr_{name}", None)


def _named(log: ImportLog) -> list[str]:
    return [each.name.removeprefix("jgr_") for each in log.imported]


def test_what_a_library_imports_in_turn_is_its_own_and_what_a_notebook_s_module_does_counts(log: ImportLog) -> None:
    importlib.import_module("jgr_own")
    importlib.import_module("jgr_in_turn")
    assert _named(log) == ["sets_up", "in_turn"]


def test_who_imports_something_when_it_is_used_stands_before_it(log: ImportLog) -> None:
    importlib.import_module("jgr_sets_up").use()
    assert _named(log) == ["sets_up", "sets_up", "reads_it"]
    assert log.imported[1].seconds == 0.0


def test_what_was_learned_keeps_that_order(log: ImportLog, monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("jgr_sets_up").use()
    monkeypatch.setattr("jupyter_gpu_release.node.agent.prepared_servers.is_installed", lambda _name: True)
    servers = PreparedServers(lambda: None, lambda: None, 0)  # type: ignore[arg-type, return-value]
    for _ in range(2):
        servers.learn("ann", "s1", log.imported)
    assert list(servers._learned["ann"]) == ["jgr_sets_up", "jgr_reads_it"]


def test_a_request_names_modules_in_the_order_in_which_the_notebook_imported_them(log: ImportLog) -> None:
    importlib.import_module("jgr_sets_up").use()
    assert LocalModules().foreign(["later", "jgr_reads_it", "jgr_sets_up"], []) == [
        "jgr_sets_up",
        "jgr_reads_it",
        "later",
    ]
