"""Names whose values a run in the background is still making: placeholders that say so, and never an old value."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..errors import CannotSendError, GpuReleaseError, StillTrainingError
from ..protocol.runs import RunView
from ..protocol.states import RunState
from ..serialization.sharing.replace import ReferenceReplacer
from ..units import format_seconds

_ABSENT = object()
#: names of IPython's own, which lead to all of it
_NOT_WALKED = frozenset({"In", "Out", "_ih", "_oh", "_dh", "get_ipython", "exit", "quit", "open"})


def _stage(view: RunView) -> tuple[str, float]:
    """The stage that the run is at, in words, and since when (unix seconds; 0: not known)."""
    if view.state == RunState.PERSISTING.word:
        return "trained, its results are being written", view.gone_at or 0.0
    if view.granted_at is not None:
        return "still training", view.granted_at
    return "its run still waits for a GPU", view.submitted_at


class AwaitedRun:
    """The run that placeholders wait for. ``view_of`` gives its newest view."""

    def __init__(self, view_of: Callable[[], RunView]) -> None:
        self._view_of = view_of
        #: its names are bound (or given up): placeholders that are left stand for nothing
        self.is_over = False

    @property
    def run(self) -> str:
        """Id of the run."""
        return self._view_of().run

    def describe(self, name: str) -> str:
        """``still training, 3 min (run …)``."""
        view = self._view_of()
        if self.is_over:
            return f"a placeholder of run {view.run}, which is over: `{name}` is the name to use"
        state, since_s = _stage(view)
        lasted = format_seconds(max(0.0, time.time() - since_s)) if since_s else "a moment"
        return f"{state}, {lasted} (run {view.run})"

    def refuse(self, name: str) -> GpuReleaseError:
        """The error for a use of the name."""
        text = f"`{name}`: {self.describe(name)}"
        if self.is_over:
            return StillTrainingError(text, hint=f"use `{name}`")
        return StillTrainingError(text, hint=f"%gpu_wait {self.run} waits for it")


class Unreturned(AwaitedRun):
    """Words of a placeholder about a value that a GPU cell made and that could not return."""

    def __init__(self, why: str) -> None:
        self._why = why
        self.is_over = True

    @property
    def run(self) -> str:
        """Nobody waits for it."""
        return ""

    def describe(self, name: str) -> str:
        """The reason."""
        return f"`{name}` was made in a GPU cell and could not return: {self._why}"

    def refuse(self, name: str) -> GpuReleaseError:
        """The error for a use of the name."""
        return CannotSendError(self.describe(name), hint="make it in a plain cell, or use it in the cell that makes it")


class Pending:
    """Stands for a value that is not there yet. It shows itself; any other use raises :class:`StillTrainingError`."""

    __slots__ = ("_jgr_awaited", "_jgr_name")

    def __init__(self, name: str, awaited: AwaitedRun) -> None:
        object.__setattr__(self, "_jgr_name", name)
        object.__setattr__(self, "_jgr_awaited", awaited)

    def __repr__(self) -> str:
        return f"<{self._jgr_awaited.describe(self._jgr_name)}>"

    def __format__(self, form: str) -> str:
        if form:
            raise self._jgr_awaited.refuse(self._jgr_name)
        return repr(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what tools look for before they show something
            raise AttributeError(str(self._jgr_awaited.refuse(self._jgr_name)))
        raise self._jgr_awaited.refuse(self._jgr_name)

    def __dir__(self) -> list[str]:
        return []

    __hash__ = object.__hash__


def _reference(value: Any) -> Callable[[], Any]:
    """Finds an object again as long as somebody holds it; one that takes no weak reference it holds itself."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _refusing(pending: Pending, *_: object, **__: object) -> Any:
    raise pending._jgr_awaited.refuse(pending._jgr_name)


_USES = (
    "call getitem setitem delitem contains iter next reversed len bool int float complex index round trunc floor ceil "
    "neg pos abs invert eq ne lt le gt ge add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv floordiv "
    "rfloordiv ifloordiv mod rmod imod divmod rdivmod pow rpow ipow matmul rmatmul imatmul and rand iand or ror ior "
    "xor rxor ixor lshift rlshift ilshift rshift rrshift irshift enter exit aenter aexit await aiter anext bytes "
    "fspath setattr delattr array reduce_ex copy deepcopy buffer length_hint"
)
for _use in _USES.split():
    setattr(Pending, f"__{_use}__", _refusing)


class NeedsRunError(Exception):
    """A GPU cell reads a name that a run in the background is still making."""

    def __init__(self, name: str, pending: Pending) -> None:
        super().__init__(name)
        self.name = name
        self.awaited: AwaitedRun = pending._jgr_awaited
        self.refusal = self.awaited.refuse(pending._jgr_name)


class PendingNames:
    """The placeholders of one run, and what they took the place of."""

    def __init__(self, namespace: dict[str, Any], names: Iterable[str], awaited: AwaitedRun) -> None:
        self._namespace = namespace
        self.awaited = awaited
        #: name → what stood there before
        self._before = {name: namespace.get(name, _ABSENT) for name in names}
        self._pending = {name: Pending(name, awaited) for name in self._before}
        #: name → what we put there: the placeholder, or a value that the run has published
        self._placed: dict[str, Any] = dict(self._pending)
        self._known = {name: _reference(value) for name, value in namespace.items()}
        namespace.update(self._pending)

    @property
    def names(self) -> list[str]:
        """Names that are awaited."""
        return list(self._pending)

    def awaited_as(self, name: str, value: Any) -> Pending | None:
        """The placeholder of ``name``, if ``value`` is what stands there until the run is done."""
        stands = name in self._placed and self._placed[name] is value
        return self._pending[name] if stands and not self.awaited.is_over else None

    def bind_early(self, name: str, value: Any) -> None:
        """Bind what the run has published so far, unless the user has bound the name anew."""
        if name in self._placed and self._namespace.get(name, _ABSENT) is self._placed[name]:
            self._namespace[name] = self._placed[name] = value

    def rebound(self, names: Iterable[str], originals: dict[str, Any]) -> set[str]:
        """Names of ``names`` that the user has bound (or deleted) since the run was sent.

        ``originals``: name → object that was sent for it.
        """
        return {name for name in names if not self._is_ours(name, originals)}

    def _is_ours(self, name: str, originals: dict[str, Any]) -> bool:
        now = self._namespace.get(name, _ABSENT)
        if name in self._placed:
            return now is self._placed[name]
        if name in originals:
            return now is originals[name]
        return now is _ABSENT or (name in self._known and self._known[name]() is now)

    def bind_results(
        self, values: dict[str, Any], others: Iterable[PendingNames], unbound: Collection[str] = ()
    ) -> list[str]:
        """The run is over and ``values`` are those of its names; the rest get back what was there before,
        less those that it ``unbound``.

        Placeholders that were put elsewhere (a list, another name) become their values. Where ``others``, newer runs,
        await the same name, they know now what stands behind it. Returns the names that were not made.
        """
        self.awaited.is_over = True
        missing = [name for name in self._pending if name not in values]
        for name in self._pending:
            value = values.get(name, _ABSENT if name in unbound else self._before.get(name, _ABSENT))
            self._hand_on(name, value, others)
            if self._namespace.get(name, _ABSENT) is self._placed[name]:
                self._set(name, value)
        found = {id(p): (p, values[name]) for name, p in self._pending.items() if name in values}
        if found:
            ReferenceReplacer(found).replace_in_names(self._namespace, but=_NOT_WALKED)
        self._before.clear()
        return missing

    def _hand_on(self, name: str, value: Any, others: Iterable[PendingNames]) -> None:
        for other in others:
            if other is not self and other._before.get(name, _ABSENT) is self._placed[name]:
                other._before[name] = value

    def _set(self, name: str, value: Any) -> None:
        if value is _ABSENT:
            self._namespace.pop(name, None)
        else:
            self._namespace[name] = value

    def had_before(self, name: str) -> bool:
        """Tell if the name held something before the run."""
        return self._before.get(name, _ABSENT) is not _ABSENT
