"""A node watches if it sees the store; one that hangs is not waited for."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jupyter_gpu_release.node.agent import store_watch
from jupyter_gpu_release.node.agent.store_watch import StoreWatch
from jupyter_gpu_release.store.run_folders import make_store


@pytest.mark.asyncio
async def test_a_store_that_goes_hangs_and_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, away = tmp_path / "store", tmp_path / "away"
    make_store(store)
    watch = StoreWatch(str(store))
    await watch.ask_store()
    assert watch.trouble == ""
    store.rename(away)
    await watch.ask_store()
    assert watch.trouble == f"the store {store} is not there: is it mounted?"
    away.rename(store)
    answers, asked = threading.Event(), []
    monkeypatch.setattr(store_watch, "require_store", lambda path: asked.append(path) or answers.wait(60))
    monkeypatch.setattr(store_watch, "_LIMIT_S", 0.05)
    await watch.ask_store()
    await watch.ask_store()
    assert "does not answer" in watch.trouble
    assert len(asked) == 1  # no thread for each look
    monkeypatch.setattr(store_watch, "_LIMIT_S", 60)
    answers.set()
    await watch.ask_store()
    assert watch.trouble == ""
