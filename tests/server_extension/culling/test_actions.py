"""An action that is carried out: what is at work by then is left alone, and nothing is left half done."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.errors import ConflictError
from jupyter_gpu_release.server_extension.culling import actions
from jupyter_gpu_release.server_extension.culling.actions import Actor, Result
from jupyter_gpu_release.server_extension.culling.policy import Action


class _Suspender:
    """Does as it is told, but for ``refused``; ``then``: what happens meanwhile."""

    def __init__(self, refused: tuple[int, ...] = (), then: Callable[[], None] = lambda: None) -> None:
        self.suspended: list[int] = []
        self._refused, self._then = refused, then

    def suspend(self, pid: int) -> None:
        if pid in self._refused:
            raise ConflictError(f"{pid} was refused")
        self.suspended.append(pid)
        self._then()

    def restore(self, pid: int) -> None:
        if pid in self._refused:
            raise ConflictError(f"{pid} was refused")
        self.suspended.remove(pid)


class _Bed:
    """One kernel, what is asked of it and which kernels were shut down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, saves: bool = False) -> None:
        self.state: tuple[bool | None, str] = (False, "no request is open")
        self.while_saving: Callable[[], None] = lambda: None
        self.asked: list[str] = []
        self.ended: list[str] = []
        culler: Any = SimpleNamespace(move_to_host=["*"], save_before_shutdown=saves)
        gateway: Any = SimpleNamespace(store="")
        self.actor = Actor(culler, gateway, SimpleNamespace(shutdown_kernel=self.ended.append))
        self.watch: Any = SimpleNamespace(kernel="k", conversation=SimpleNamespace(busy=lambda: self.state))
        monkeypatch.setattr(actions, "let_go", self._let_go)
        monkeypatch.setattr(actions, "save_variables", self._save)
        monkeypatch.setattr(Actor, "_saved_path", lambda _actor, kernel: f"saved/{kernel}")

    def begin_cell(self) -> None:
        self.state = True, "a cell is running (1)"

    async def act(self, action: Action, *pids: int) -> Result:
        return await self.actor.on_kernel(action, self.watch, list(pids))

    async def _let_go(self, _watch: Any, patterns: list[str]) -> dict[str, Any]:
        self.asked.append(f"let go {patterns}")
        return {"freed_bytes": 1 << 30, "libraries": ["torch"], "moved": [], "notes": []}

    async def _save(self, _watch: Any, path: str) -> dict[str, Any]:
        self.asked.append(f"save {path}")
        self.while_saving()
        return {"saved": ["a", "b"], "notes": ["c is too large"]}


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> _Bed:
    return _Bed(monkeypatch)


@pytest.mark.asyncio
@pytest.mark.parametrize("state", [(True, "a cell is running (1)"), (None, "it runs on another Jupyter server")])
async def test_what_is_at_work_or_unknown_is_told_and_not_touched(state: tuple[bool | None, str], bed: _Bed) -> None:
    bed.state, bed.actor.suspender = state, _Suspender()
    for action in (Action.RELEASE, Action.SUSPEND, Action.SHUTDOWN):
        assert await bed.act(action, 7) == Result(False, f"left alone after all: {state[1]}")
    assert (bed.asked, bed.ended, bed.actor.suspender.suspended) == ([], [], [])
    assert await bed.act(Action.NOTIFY) == Result(True, "its user was told")


@pytest.mark.asyncio
async def test_an_idle_kernel_lets_go(bed: _Bed) -> None:
    assert await bed.act(Action.RELEASE) == Result(True, "torch let 1 GiB go", frees=True)
    assert bed.asked == ["let go ['*']"]


@pytest.mark.asyncio
async def test_processes_are_suspended_all_or_none(bed: _Bed) -> None:
    assert (await bed.act(Action.SUSPEND, 7)).words.startswith("suspending is not available")
    bed.actor.suspender = suspender = _Suspender()
    done = await bed.act(Action.SUSPEND, 7, 8)
    assert (done.done, done.frees, suspender.suspended) == (True, True, [7, 8])
    assert done.words.startswith("2 processes suspended in ")
    bed.actor.suspender = suspender = _Suspender(refused=(8,))
    assert await bed.act(Action.SUSPEND, 7, 8) == Result(False, "8 was refused")
    assert suspender.suspended == []


@pytest.mark.asyncio
async def test_a_cell_that_begins_while_its_kernel_is_suspended_has_its_memory_back(bed: _Bed) -> None:
    bed.actor.suspender = suspender = _Suspender(then=bed.begin_cell)
    assert await bed.act(Action.SUSPEND, 7, 8) == Result(False, "restored at once: a cell was begun meanwhile")
    assert suspender.suspended == []


@pytest.mark.asyncio
async def test_all_that_can_be_restored_is_and_the_refusal_is_told(bed: _Bed) -> None:
    bed.actor.suspender = suspender = _Suspender(refused=(8,))
    suspender.suspended = [7, 8, 9]
    with pytest.raises(ConflictError, match="8 was refused"):
        await bed.actor.restore([7, 8, 9])
    assert suspender.suspended == [8]


@pytest.mark.asyncio
async def test_a_kernel_is_shut_down_after_its_variables_were_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _Bed(monkeypatch)
    assert await plain.act(Action.SHUTDOWN) == Result(True, "shut down", frees=True)
    bed = _Bed(monkeypatch, saves=True)
    words = "2 variables saved to saved/k, then shut down; not saved: c is too large"
    assert await bed.act(Action.SHUTDOWN) == Result(True, words, frees=True)
    assert (plain.asked, plain.ended, bed.asked, bed.ended) == ([], ["k"], ["save saved/k"], ["k"])


@pytest.mark.asyncio
async def test_a_cell_that_begins_while_variables_are_saved_keeps_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = _Bed(monkeypatch, saves=True)
    bed.while_saving = bed.begin_cell
    assert await bed.act(Action.SHUTDOWN) == Result(False, "left alone after all: a cell is running (1)")
    assert bed.ended == []
