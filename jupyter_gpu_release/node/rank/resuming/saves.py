"""Saves of a restartable cell: what it has made so far, and its place."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ....adapters.adapter import GroupState, ImmovableError
from ....adapters.registry import group_facts, loaded_adapters
from ....protocol.cell import Graph
from ....protocol.runs import SAVE_FORMAT, Save
from ....serialization.diagnosis import find_trouble
from ....serialization.rebuild import NamespaceInfo
from ....store.graph_file import write_graph
from ....store.layout import SAVE_FILE, of_attempt
from ....submission import library_patches
from ...ipc.frames import RankOrder
from ...results.persister import require_file_size
from ...values.collected_values import Collected
from ...values.immovable import begun_file, has_graph, in_words
from . import figures, random_state
from .cell_program import CellProgram, LoopNode
from .checkpoints import Checkpoints
from .loops import Loop
from .open_files import WrittenFiles
from .places import bars_of, next_number
from .preempted import TakenSave
from .run_files import FilesSnapshot, StoreUnfitError


class SavedNames(Protocol):
    """The cell's names, as :class:`.RankValues` has them."""

    @property
    def realm(self) -> NamespaceInfo:
        """The namespace that they belong to."""

    def save(
        self,
        state: dict[str, Any],
        *,
        anew: Collection[str],
        may_read: Callable[[str], bool],
        set_in_libraries: Mapping[str, Any],
    ) -> Collected:
        """Gather all that the cell has made, and ``state``."""

    @property
    def group(self) -> GroupState | None:
        """The part of a save that belongs to the process group."""

    def changed_settings(self) -> dict[str, Any]:
        """Settings that the cell has changed so far."""

    def set_settings(self, settings: dict[str, Any]) -> None:
        """Set these."""


class Saves:
    """Makes the saves of one attempt."""

    def __init__(self, order: RankOrder, values: SavedNames, namespace: dict[str, Any]) -> None:
        self._order = order
        self._values = values
        self._namespace = namespace
        self._written_files = WrittenFiles()
        self._began_s = time.monotonic()
        self.program = CellProgram([])
        self.checkpoints = Checkpoints()
        #: the statement of the cell that runs
        self.statement = 0
        #: settings and the like as they were outside of the ``with`` statements around the loop
        self.around: dict[str, Any] | None = None
        #: why that is not known
        self.lost_around = ""
        #: of the latest save
        self.number = order.save.number if order.save is not None else 0

    def states(self) -> dict[str, Any]:
        """Random states, folder and settings as they are now."""
        try:
            folder = os.getcwd()
        except OSError as error:
            raise ImmovableError("its working folder is gone") from error
        return {"rng": random_state.capture(), "folder": folder, "settings": self._values.changed_settings()}

    def set_states(self, states: dict[str, Any]) -> None:
        """Set them."""
        os.chdir(states["folder"])
        self._values.set_settings(states["settings"])
        random_state.restore(states["rng"])

    def place_of(self, loop: Loop | None) -> str:
        """A safe point in the words of its user: ``epoch 7``."""
        if loop is None:
            return self.checkpoints.place
        node = self.program.loops[loop.number]
        if loop.iterator is None:
            return f"line {node.node.lineno}"
        number = next_number(loop.iterator)
        if node.variable and number is not None:
            return f"{node.variable} {number}"
        return f"round {loop.rounds + 1}" + (f" of {loop.total}" if loop.total is not None else "")

    def make(
        self, place: str, loop: Loop | None, files: FilesSnapshot, lengths: dict[str, int] | None = None
    ) -> TakenSave:
        """Save the cell at this safe point. ``lengths``: of the run's files, where another rank has looked.

        Raises ImmovableError for a cell that cannot be saved, StoreUnfitError for one that cannot now.
        """
        self._expect_movable(loop)
        values = self._gathered(loop, files.lengths() if lengths is None else lengths)
        files.expect_room(values.total_bytes)
        require_file_size([values.stream, *values.buffers])
        is_counted = loop is not None and loop.iterator is not None
        save = Save(
            self.number,
            self._order.attempt,
            time.time(),
            place,
            values.total_bytes,
            results=values.results,
            notes=values.notes,
            round=loop.rounds + 1 if loop is not None and is_counted else None,
            rounds=None if loop is None else loop.total,
            ran_s=time.monotonic() - self._began_s,
            format=SAVE_FORMAT,
        )
        return TakenSave(save, values)

    def write(self, taken: TakenSave) -> Save:
        """Write a save that was made without notice beside the run; the last but one of its kind goes."""
        folder, name = Path(self._order.folder), self._file(taken.save.number, self._order.attempt)
        digest = write_graph(folder / name, taken.values.stream, taken.values.buffers)
        # of the one before it may be that nobody has heard of this one yet
        before = taken.save.number - 2
        resumed, attempt = self._order.save, self._order.attempt
        if resumed is not None and before <= resumed.number:
            attempt = resumed.attempt
        (folder / self._file(before, attempt)).unlink(missing_ok=True)
        return msgspec.structs.replace(taken.save, values=Graph(file=name, digest=digest))

    def _file(self, number: int, attempt: int) -> str:
        name = SAVE_FILE.format(number=f"{number}-{self._order.rank}" if self._order.rank else number)
        return of_attempt(name, attempt)

    # ------------------------------------------------------------------------- what cannot be saved
    def _expect_movable(self, loop: Loop | None) -> None:
        if self.checkpoints.current is None:  # from a checkpoint all of it begins anew
            node = None if loop is None else self.program.loops[loop.number]
            if lost := self.lost_around or self._begun_file(node):
                raise ImmovableError(lost)
            if loop is not None and (lost := loop.places.lost()):
                raise (ImmovableError if loop.is_marked else StoreUnfitError)(lost)
            self._expect_no_graph(loop)
        for adapter in loaded_adapters():
            if why := adapter.why_not_now():
                raise StoreUnfitError(why)

    def _begun_file(self, node: LoopNode | None) -> str:
        """The reason why a file that ``with`` opens again would not be what it is; empty: there is none."""
        if node is None:
            return self._left_open(())
        read = node.body_names - node.header_names  # what the loop goes over is read on
        values = {name: self._namespace.get(name) for name in sorted(node.bound_around)}
        found = (begun_file(name, value, is_read=name in read) for name, value in values.items())
        if reason := next(filter(None, found), ""):
            return reason
        if node.makes_anew:
            return f"`with {node.makes_anew}` would begin anew what it holds: make it before, or in each round"
        return self._left_open(values.values())

    def _left_open(self, opened_again: Iterable[Any]) -> str:
        """The reason why a file that something writes to would lose what comes; empty: there is none.

        A file that a name holds counts only if the name may be read.
        """
        files = [value for value in dict.values(self._namespace) if isinstance(value, io.IOBase)]
        path = self._written_files.left([*files, *opened_again])
        closes = "close it before the loop, or open it in each round"
        return f"{os.path.basename(path)} is open for writing: {closes}" if path else ""

    def _expect_no_graph(self, loop: Loop | None) -> None:
        """Raise StoreUnfitError for results that the cell's rest may go back through."""
        names = self.program.may_go_back(self.statement, None if loop is None else loop.number)
        for name in sorted(names):
            if has_graph(self._namespace.get(name)):
                raise StoreUnfitError(
                    f"`{name}` has a graph of its computation, which does not travel (keep {name}.detach() or .item())"
                )

    # ---------------------------------------------------------------------------- what is in a save
    def _gathered(self, loop: Loop | None, lengths: dict[str, int]) -> Collected:
        anew, state, patches = self._bound_anew(loop), self._state(loop, lengths), self._set_in_libraries()
        try:
            return self._values.save(state, anew=anew, may_read=self._may_read(loop), set_in_libraries=patches)
        except ImmovableError:
            raise
        except Exception as error:
            if (current := self.checkpoints.current) is not None:
                trouble = find_trouble("state", current["state"], self._values.realm, error)
                raise ImmovableError(in_words("state", current["state"], trouble)) from error
            raise ImmovableError(f"{type(error).__name__}: {error}") from error

    def _set_in_libraries(self) -> dict[str, Any]:
        """Attributes to which the cell's code and the notebook's functions assign."""
        codes = [self.program.code, *library_patches.codes_of(self._namespace)]
        chains: set[str] = set().union(*map(library_patches.stored_attributes, codes))
        return library_patches.values_at(sorted(chains), self._namespace)

    def _bound_anew(self, loop: Loop | None) -> set[str]:
        """Names that the cell binds before it goes on in the loop."""
        if loop is None:
            return set()
        bars = bars_of(loop.iterator) if loop.places.first is None else ()
        names = {name for bar in bars for name in self._names_of(bar)}
        return {*self.program.loops[loop.number].bound_around, *names}

    def _names_of(self, thing: Any) -> list[str]:
        return [name for name, value in dict.items(self._namespace) if value is thing]

    def _may_read(self, loop: Loop | None) -> Callable[[str], bool]:
        """A question that is worked out when it is asked: names that cannot be pickled are rare."""
        if self.checkpoints.current is not None:
            return lambda _name: False
        number = None if loop is None else loop.number

        @cache
        def names() -> set[str]:
            return self.program.may_read(self.statement, number)

        return lambda name: name in names()

    def _state(self, loop: Loop | None, lengths: dict[str, int]) -> dict[str, Any]:
        state: dict[str, Any] = {"files": lengths, **self.checkpoints.saved()}
        if self.checkpoints.current is not None:
            return state
        state |= {
            **self.states(),
            "group": group_facts(self._order.ranks),
            "statement": self.statement,
            "around": self.around,
            "figures": figures.capture(),
            "loop": None if loop is None else loop.number,
        }
        if loop is None:
            return state
        facts = {"rounds": loop.rounds, "total": loop.total, "every_s": loop.every_s, "is_marked": loop.is_marked}
        place = None if loop.iterator is None else loop.place(self._names_of)
        return {**state, **facts, "iterator": place}


def expect_nothing_running() -> None:
    """Raise ImmovableError if something runs beside the cell that is lost with the process."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if any(not task.done() for task in tasks):
        raise ImmovableError("an asyncio task still runs")
    subprocess._cleanup()  # type: ignore[attr-defined]
    if left := subprocess._active:  # type: ignore[attr-defined]  # of which the cell has no object any more
        raise ImmovableError(f"the process {left[0].pid} that it has started still runs")
    for thread in threading.enumerate():
        target = getattr(thread, "_target", None) or type(thread)
        if thread is not threading.main_thread() and getattr(target, "__module__", "") == "__main__":
            raise ImmovableError(f"the thread {thread.name} still runs")
