"""A cell that may be asked to step aside: runs its statements, stops at safe points, goes on from a save."""

from __future__ import annotations

import ast
import asyncio
import builtins
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from blake3 import blake3

from ....adapters.adapter import GroupState
from ....adapters.registry import loaded_adapters
from ....protocol.cell import Graph
from ....protocol.runs import Save
from ....serialization import codec
from ....serialization.diagnosis import find_trouble
from ....serialization.load_order import global_reads
from ....serialization.rebuild import NamespaceInfo
from ....serialization.sharing.replace import ReferenceReplacer
from ....store.graph_file import write_graph
from ....store.layout import SAVE_FILE, RunPaths, of_attempt
from ....submission import library_patches
from ...ipc.frames import RankOrder, Stay
from ...ipc.notice import Notice, Word
from ...results.persister import require_file_size
from ...values import frameworks
from ...values.collected import Collected, ImmovableError
from ...values.immovable import begun_file, has_graph, in_words
from . import figures, random_state
from .cell_program import LOOPS, CellProgram
from .checkpoints import Checkpoints
from .gang import process_group
from .iterators import Exchanged, bars_of, can_be_saved, is_container, next_number, unpack
from .open_files import WrittenFiles
from .run_files import set_back
from .save_pace import SavePace
from .saver import Saver, SaverReport, stay_of
from .stepped_aside import RunNodes, SteppedAside, TakenSave
from .store_look import StoreLook, StoreUnfitError
from .user_loop import ResumableLoop, length_of

if TYPE_CHECKING:
    from .gang.gang_save import GangSave

#: what a loop's header reads is copied up to this
_COPIED_BYTES = 1 << 20
_MOST_NAMED = 8


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


@dataclass
class _Header:
    """A header of a loop that is being evaluated. ``first``: how things were before."""

    number: int
    first: dict[str, Any] = field(default_factory=dict)
    is_resumable: bool = False
    #: ``first`` is known
    is_early: bool = True
    every_s: float | None = None


class RestartableCell:
    """One attempt of a cell. ``flush_files``: writes what the cell's open files hold back."""

    def __init__(
        self,
        order: RankOrder,
        values: SavedNames,
        notice: Notice,
        namespace: dict[str, Any],
        *,
        flush_files: Callable[[], None],
        say: Callable[[str], None],
        stay: Callable[[Stay], None],
        saved: Callable[[Save], None],
        gang: GangSave | None = None,
        ask_for_save: Callable[[], None] = lambda: None,
    ) -> None:
        self._order = order
        self._values = values
        self._notice = notice
        self._namespace = namespace
        self._flush_files = flush_files
        self._say = say
        self._tell_stay = stay
        self._tell_saved = saved
        #: of several ranks
        self._gang = gang
        self._ask_for_save = ask_for_save
        self._files = RunPaths(Path(order.folder)).files
        self._program = CellProgram([])
        self._written_files = WrittenFiles()
        self._header: _Header | None = None
        self._said_plain = self._said_unsaved = self._said_unread = False
        self._is_immovable = self._is_of_size = False
        #: of the attempt before, until the cell is where that was
        self._left: dict[str, Any] | None = None
        #: the run's files, as that left them
        self._left_files: dict[str, int] = {}
        self._checkpoints = Checkpoints()
        #: generators of random numbers that the header draws from once more, and their states now
        self._lent: list[tuple[Any, Any]] = []
        self._loop: ResumableLoop | None = None
        #: settings and the like as they were outside of the ``with`` statements around the loop
        self._around: dict[str, Any] | None = None
        self._lost_around = ""
        self._statement = 0
        self._began_s = time.monotonic()
        self._pace = SavePace(self._began_s)
        self._due_s = float("inf")
        self._saver: Saver | None = None
        self._number = order.save.number if order.save is not None else 0
        #: with this the attempt ends
        self.taken: TakenSave | None = None
        #: keeps interrupts out, lets them in
        self.close_gate: Callable[[], None] = lambda: None
        self.open_gate: Callable[[], None] = lambda: None

    def go_on_from(self, state: dict[str, Any]) -> None:
        """Let :meth:`run_statements` begin where an earlier attempt has stepped aside; its names are bound.

        From a checkpoint it begins with the first statement.
        """
        self._left_files = state["files"]
        self._checkpoints.go_on_from(state)
        if "statement" in state:
            self._left = state
            figures.restore(state.get("figures", []))
            if (group := self._values.group) is not None:
                self._join_again(group)

    def join(self, made: dict[str, Any]) -> dict[str, Any]:
        """Make the process groups again, before the names are read that belong to them; returns them by name."""
        return process_group.restore(made, self._order.rank, self._order.ranks)

    def _join_again(self, group: GroupState) -> None:
        for adapter in loaded_adapters():
            adapter.join_again(group)
        if group.groups and self._is_resized:
            process_group.resize_samplers()

    @property
    def _is_resized(self) -> bool:
        """Tell if the gang has another size than when it was saved."""
        save = self._order.save
        return save is not None and len(save.parts) + 1 != self._order.ranks

    def set_files_back(self) -> None:
        """Let the run's folder have the files that it had, and say where the cell goes on."""
        save = self._order.save
        if not self._order.rank:  # the files are those of all ranks
            set_back(self._files, self._left_files)
            self._say("again from the beginning" if save is None else f"again from {save.place}")
            if save is not None and self._is_resized:
                self._say(_resized(save, self._order.ranks))
        if self._gang is not None:
            self._gang.meet()

    # ------------------------------------------------------------------------------- statements
    async def run_statements(self, nodes: list[ast.stmt], interactivity: str, run: RunNodes) -> bool:
        """Run the cell's statements, as IPython's ``run_ast_nodes`` does; True: it failed, or has stepped aside."""
        self._program = CellProgram(nodes)
        setattr(builtins, LOOPS, self)
        first, statements = self._begin(nodes)
        for number, node in enumerate(statements, first):
            self._end_loop()
            self._statement = number
            # a cell that is on its way back into a loop stands at no statement's beginning
            if self._left is None and self._is_asked(f"line {node.lineno}", None):
                return True
            self._note_around(number)
            is_shown = node is statements[-1] or interactivity == "all"
            if await run([node], interactivity if is_shown else "none") or self.taken is not None:
                return True
        return False

    def _end_loop(self) -> None:
        if self._loop is not None:
            self._loop.end()
        self._loop = None

    def _begin(self, nodes: list[ast.stmt]) -> tuple[int, list[ast.stmt]]:
        left = self._left
        if left is None:
            return 0, nodes
        first: int = left["statement"]
        if left["loop"] is None:
            self._left = None
            self._set_states(left)
            return first, nodes[first:]
        self._set_states(left["around"] or left)
        return first, self._program.statements_from(first, left["loop"], anew="iterator" not in left)

    def _note_around(self, number: int) -> None:
        """Remember how things are outside of the ``with`` statements that are entered now."""
        self._around = None
        self._lost_around = ""
        if any(loop.statement == number and loop.is_inside_with for loop in self._program.loops):
            try:
                self._around = self._left["around"] if self._left is not None else self._states()
            except Exception as error:  # noqa: BLE001 - the cell runs, and cannot be moved from there
                self._lost_around = stay_of(error).reason

    def _states(self) -> dict[str, Any]:
        try:
            folder = os.getcwd()
        except OSError as error:
            raise ImmovableError("its working folder is gone") from error
        return {"rng": random_state.capture(), "folder": folder, "settings": self._values.changed_settings()}

    def _set_states(self, states: dict[str, Any]) -> None:
        os.chdir(states["folder"])
        self._values.set_settings(states["settings"])
        random_state.restore(states["rng"])

    # ------------------------------------------------------------------------------------ loops
    def begin(self, number: int) -> _Header:
        """Called by the cell before the header of a loop is evaluated."""
        left = self._left
        if left is not None:
            self._header = _Header(number, left["header"])
            self._bind_as_first(left["header"])
        else:
            is_plain = self._program.loops[number].is_plain
            self._header = _Header(number, {} if is_plain else self._first_look(number), is_early=not is_plain)
        return self._header

    def __call__(self, header: _Header, items: Any) -> Any:
        """Called by the cell with what the header gave; returns what the loop goes over."""
        self._header = None
        if not header.is_resumable:
            return items
        if not header.is_early and not is_container(items):
            header.first = self._first_look(header.number)
        loop = ResumableLoop(header.number, iter(items), self._before_round)
        loop.every_s, loop.total = header.every_s, length_of(items)
        try:
            if not can_be_saved(loop.iterator) and not self._is_own(loop.iterator):
                loop.header = header.first
                loop.large = large_digests(header.first.get("buffers", ()))
        except Exception as error:  # noqa: BLE001 - a loop that cannot be saved runs all the same
            loop.header = {"lost": [stay_of(error).reason]}
        if (left := self._left) is not None:
            loop.skip_rounds(left["rounds"])
            self._namespace.update(left["names_now"])
            self._arrive(left)
        return self._enter(loop)

    def again(self, number: int) -> Any:
        """Called by the cell in place of the header of a loop whose iterator was saved."""
        left = self._left
        assert left is not None
        exchanged: Exchanged = []
        iterator = unpack(left["iterator"], self._namespace.__setitem__, exchanged)
        loop = ResumableLoop(number, iterator, self._before_round, exchanged)
        loop.rounds = loop.rounds_before = left["rounds"]
        loop.total, loop.every_s = left["total"], left["every_s"]
        self._arrive(left)
        return self._enter(loop)

    def _is_own(self, iterator: Any) -> bool:
        """Tell if it is an object of a class of the notebook that can be pickled: so it stays one with the names."""
        if type(iterator).__module__ != "__main__":
            return False
        return not codec.dump({"it": iterator}, self._values.realm).failed

    def _tell_size(self) -> None:
        """Have the gateway neither grow nor shrink a gang whose names are spread over its ranks."""
        if not self._order.is_elastic or self._order.rank or self._is_of_size:
            return
        try:
            why = process_group.why_of_this_size(self._namespace, self._order.ranks)
        except Exception as error:  # noqa: BLE001 - what the names hold is foreign code
            why = stay_of(error).reason
        if why:
            self._is_of_size = True
            self._tell_stay(Stay(why, of_size=True))
            self._say(why)

    def _enter(self, loop: ResumableLoop) -> Iterator[Any]:
        self._tell_size()
        self._loop = loop
        self._set_pace(loop.every_s)
        return loop.items()

    def _set_pace(self, every_s: float | None) -> None:
        self._pace.set_every(0.0 if self._order.rank else every_s)  # rank 0 sees when a gang is to be saved
        self._set_due()

    def _arrive(self, left: dict[str, Any]) -> None:
        self._left = None
        for generator, state in self._lent:
            random_state.set_state(generator, state)
        self._lent.clear()
        self._set_states(left)

    def on_resumable(self, every_s: float | None, caller: FrameType) -> None:
        """``resumable`` was called, by ``caller``."""
        if self._header is not None and caller.f_locals is self._namespace:
            self._header.is_resumable, self._header.every_s = True, every_s
        elif not self._said_plain:
            self._said_plain = True
            self._say(
                "resumable() is a plain loop here: the cell can step aside in loops at its top level "
                "(or there inside with or if); in functions it can at checkpoint(state), see restore()"
            )

    def _first_look(self, number: int) -> dict[str, Any]:
        try:
            return self._state_of_header(number)
        except Exception as error:  # noqa: BLE001 - the loop runs all the same, and cannot be moved
            return {"lost": [stay_of(error).reason]}

    def _state_of_header(self, number: int) -> dict[str, Any]:
        place = self._program.loops[number]
        names = {name: self._namespace[name] for name in place.header_names() if name in self._namespace}
        if not any(_is_resumable(name, names.get(name)) for name in place.called()):
            return {}
        dump, own = self._with_reads(names), names.keys() - place.bound_around  # those are bound anew
        buffers = [_kept(buffer) for buffer in dump.buffers]
        lost = [f"`{name}` of the loop's header: {error}" for name, error in dump.failed.items() if name in own]
        generators = [found for found in dump.memo.values() if random_state.is_generator(found[1])]
        return {
            "rng": random_state.capture(),
            "stream": dump.stream,
            "buffers": buffers,
            "lost": lost,
            "generators": generators,
        }

    def _with_reads(self, names: dict[str, Any]) -> codec.Dump:
        """These names, and those that their functions read."""
        while True:
            dump = codec.dump(names, self._values.realm)
            reads = {name for code in dump.codes for name in global_reads(code)} - names.keys()
            more = {name: self._namespace[name] for name in reads if name in self._namespace}
            if not more:
                return dump
            names |= more

    def _bind_as_first(self, first: dict[str, Any]) -> None:
        left = self._left
        assert left is not None
        loaded = codec.load(first["stream"], first["buffers"], self._values.realm)
        left["names_now"] = {name: self._namespace[name] for name in loaded.values if name in self._namespace}
        self._namespace.update(self._with_own_generators(loaded, first["generators"]))
        random_state.restore(first["rng"])

    def _with_own_generators(self, loaded: codec.Loaded, generators: list[tuple[int, Any]]) -> dict[str, Any]:
        """The values, with the cell's own generators in their first states: so there are no two of one kind."""
        pairs = [(loaded.memo[number], own) for number, own in generators]
        replaced = {id(copy): (copy, own) for copy, own in pairs}
        self._lent = [(own, random_state.state_of(own)) for _, own in pairs]  # some are parts of others
        for copy, own in pairs:
            random_state.set_state(own, random_state.state_of(copy))
        if replaced:
            exchange = ReferenceReplacer(replaced)
            exchange.replace_inside(loaded.values.values())
            exchange.replace_in_names(loaded.values)
        return loaded.values

    # ------------------------------------------------------------------------------ safe points
    def _before_round(self, loop: ResumableLoop) -> None:
        self._at_safe_point(loop)

    def on_checkpoint(self, state: Any, every_s: float | None) -> None:
        """``checkpoint`` was called."""
        if self._checkpoints.is_elsewhere:
            return
        if self.taken is not None:  # the code has caught it
            raise SteppedAside
        if self._order.ranks > 1:
            self._say_unread("checkpoint() does nothing in a gang: it steps aside between rounds of resumable()")
            return
        if self._loop is not None:
            self._say_unread("checkpoint() does nothing in a resumable() loop: the cell steps aside between its rounds")
            return
        if self._checkpoints.is_unread:
            self._say_unread("checkpoint() without restore(): a run that goes on later begins again, without the state")
        self._set_pace(every_s)
        self._checkpoints.begin(state)
        try:
            self._at_safe_point(None)
        finally:
            self._checkpoints.end()

    def on_restore(self) -> Any:
        """``restore`` was called."""
        state, group = self._checkpoints.restore(), self._values.group
        if state is None or group is None or not group.replicas:
            return state
        if process_group.is_there():
            for adapter in loaded_adapters():
                adapter.join_again(group)
            return state
        self._say(
            "restore() gives modules without DistributedDataParallel where it is called before init_process_group()"
        )
        held = {"state": state}
        exchange = ReferenceReplacer({id(replica): (replica, module) for replica, module, _ in group.replicas})
        exchange.replace_inside([held])
        return held["state"]

    def _say_unread(self, text: str) -> None:
        if not self._said_unread:
            self._said_unread = True
            self._say(text)

    def _at_safe_point(self, loop: ResumableLoop | None) -> None:
        if time.monotonic() >= self._due_s:
            self._on_due(loop)
        if self._is_asked("", loop):
            raise SteppedAside

    def _is_asked(self, place: str, loop: ResumableLoop | None) -> bool:
        """Tell if the cell was asked to step aside here, and is saved. ``place``: where it is, if that is known."""
        if self._gang is not None:
            return self._is_asked_with_others(self._gang, place, loop)
        return self._notice.is_given and self._has_saved(place, loop)

    def _is_asked_with_others(self, gang: GangSave, place: str, loop: ResumableLoop | None) -> bool:
        number = self._number_of(loop)
        word = self._notice.ask_at(number)
        if word is Word.YIELD and self._has_saved(place, loop):
            return True
        if word is Word.SAVE:
            self._save_with_others(gang, loop)
        if word:
            self._notice.go_behind(number)
        return False

    def _number_of(self, loop: ResumableLoop | None) -> int:
        """This safe point's number: higher than those before it, and the same in all ranks."""
        if loop is not None:
            return (self._statement + 1) << 49 | (loop.number + 1) << 36 | (loop.rounds + 1)
        return (self._statement + 1) << 49 | self._checkpoints.count

    def _on_due(self, loop: ResumableLoop | None) -> None:
        """Save in a fork while the cell goes on; before the first time see if it could be moved."""
        is_trial = self._pace.is_trial(began_s := time.monotonic())
        if self._saver is None or self._saver.is_over:
            self._save_beside(lambda: self._begin_due(loop, is_trial=is_trial))
        self._note_saved(began_s, was_trial=is_trial)

    def _begin_due(self, loop: ResumableLoop | None, *, is_trial: bool) -> Saver | None:
        if self._gang is not None and not is_trial:  # all ranks together, soon
            self._ask_for_save()
            return None
        if is_trial and frameworks.has_touched_gpu():  # to try it would copy all that is there
            return None
        return self._begin_save(loop, self._look_around(), is_trial=is_trial)

    def _save_with_others(self, gang: GangSave, loop: ResumableLoop | None) -> None:
        began_s = time.monotonic()
        self._save_beside(lambda: self._begin_save_with_others(gang, loop), tells=not self._order.rank)
        self._note_saved(began_s, was_trial=False)

    def _begin_save_with_others(self, gang: GangSave, loop: ResumableLoop | None) -> Saver:
        look: StoreLook | None = None
        stay: Stay | None = Stay("", for_now=True)  # the save before is not finished
        if self._saver is None or self._saver.is_over:
            look, stay = self._looked_around()
        self.open_gate()  # the others may take as long as a round
        lengths = gang.meet_for_save(stay, lambda: StoreLook(self._files).lengths())
        self.close_gate()
        assert look is not None
        return self._begin_save(loop, look, lengths, is_trial=False)

    def _looked_around(self) -> tuple[StoreLook | None, Stay | None]:
        try:
            return self._look_around(), None
        except Exception as error:  # noqa: BLE001 - the other ranks wait for an answer
            return None, stay_of(error)

    def _save_beside(self, begin: Callable[[], Saver | None], *, tells: bool = True) -> None:
        self.close_gate()  # no half of a save, and no interrupt for the fork
        try:
            self._saver = begin()
        except Exception as error:  # noqa: BLE001 - the cell goes on
            stay = stay_of(error)
            self._on_unsaved(stay, tells=tells and bool(stay.reason))
        finally:
            self.open_gate()

    def _note_saved(self, began_s: float, *, was_trial: bool) -> None:
        now_s = time.monotonic()
        self._pace.note_done(now_s, now_s - began_s, was_trial=was_trial)
        self._set_due()

    def _set_due(self) -> None:
        self._due_s = float("inf") if self._is_immovable else self._pace.due_s

    def _begin_save(
        self, loop: ResumableLoop | None, look: StoreLook, lengths: dict[str, int] | None = None, *, is_trial: bool
    ) -> Saver:
        place = self._place_of(loop)
        if not is_trial:
            self._number += 1
        if not frameworks.has_touched_gpu():
            numbers = random_state.capture()  # the module `random` begins anew in a fork

            def save() -> TakenSave:
                random_state.restore(numbers)
                return self._save(place, loop, look, lengths)

            return Saver(lambda: self._saved_beside(save, is_trial), self._on_report)
        taken = self._save(place, loop, look, lengths)  # a fork cannot read what is on a GPU
        return Saver(lambda: self._saved_beside(lambda: taken, is_trial), self._on_report)

    def _saved_beside(self, save: Callable[[], TakenSave], is_trial: bool) -> SaverReport:
        """Carried out in the fork."""
        taken = save()
        return SaverReport() if is_trial else SaverReport(self._written(taken))

    def _written(self, taken: TakenSave) -> Save:
        folder, name = Path(self._order.folder), self._save_file(taken.save.number, self._order.attempt)
        digest = write_graph(folder / name, taken.values.stream, taken.values.buffers)
        # of the one before it may be that nobody has heard of this one yet
        before = taken.save.number - 2
        resumed, attempt = self._order.save, self._order.attempt
        if resumed is not None and before <= resumed.number:
            attempt = resumed.attempt
        (folder / self._save_file(before, attempt)).unlink(missing_ok=True)
        return msgspec.structs.replace(taken.save, values=Graph(file=name, digest=digest))

    def _save_file(self, number: int, attempt: int) -> str:
        name = SAVE_FILE.format(number=f"{number}-{self._order.rank}" if self._order.rank else number)
        return of_attempt(name, attempt)

    def _on_report(self, report: SaverReport) -> None:
        """Called on the thread that follows the saver."""
        if report.save is not None:
            self._tell_saved(report.save)
        if report.stay is not None:
            self._on_unsaved(report.stay)

    def _on_unsaved(self, stay: Stay, *, tells: bool = True) -> None:
        if not stay.for_now:
            self._is_immovable = True
            self._due_s = float("inf")
            if tells:
                self._tell_stay(_in_words(stay))
        elif tells and not self._said_unsaved:
            self._said_unsaved = True
            self._say(f"{_in_words(stay).reason}; it is tried again")

    def end_saver(self) -> None:
        """The attempt ends, or is saved now: nobody waits for what is under way."""
        if self._saver is not None:
            self._saver.dismiss()

    def _place_of(self, loop: ResumableLoop | None) -> str:
        if loop is None:
            return self._checkpoints.place
        name, number = self._program.loops[loop.number].variable, next_number(loop.iterator)
        if name and number is not None:
            return f"{name} {number}"
        return f"round {loop.rounds + 1}" + (f" of {loop.total}" if loop.total is not None else "")

    def _has_saved(self, place: str, loop: ResumableLoop | None) -> bool:
        """Save what the cell has made; False: that is not possible, and the cell goes on."""
        self._number += 1
        try:
            self.end_saver()
            self.taken = self._taken_now(place or self._place_of(loop), loop)
        except Exception as error:  # noqa: BLE001 - the cell goes on
            self._stay(stay_of(error))
        return self.taken is not None

    def _taken_now(self, place: str, loop: ResumableLoop | None) -> TakenSave:
        """The save; then interrupts are kept out."""
        self._tell_size()
        if self._gang is None:
            return self._take(place, loop)

        def take() -> TakenSave:
            taken = self._take(place, loop)
            self.open_gate()  # the others may take as long as a round
            return taken

        taken = self._gang.step_aside(take, self._expect_room)
        self.close_gate()
        return taken

    def _take(self, place: str, loop: ResumableLoop | None) -> TakenSave:
        self.close_gate()  # an interrupt comes before or after it
        taken = None
        try:
            taken = self._save(place, loop, self._look_around())
        finally:
            if taken is None:
                self.open_gate()
        return taken

    def _expect_room(self, size: int) -> None:
        look = StoreLook(self._files)
        look.lengths()
        look.expect_room(size)

    def _stay(self, stay: Stay) -> None:
        if self._gang is None:
            self._notice.take_back()
        if not self._order.rank:
            self._tell_stay(_in_words(stay))

    def _look_around(self) -> StoreLook:
        """Do what must be done at the very moment of a save, before a fork: files go on growing."""
        if self._checkpoints.current is None:  # from a checkpoint all of it begins anew
            _expect_nothing_running()
        self._flush_files()
        look = StoreLook(self._files)
        look.lengths()
        return look

    def _save(
        self, place: str, loop: ResumableLoop | None, look: StoreLook, lengths: dict[str, int] | None = None
    ) -> TakenSave:
        if lost := self._lost_around or _lost_header(loop) or self._begun_file(loop):
            raise ImmovableError(lost)
        self._expect_no_graph(loop)
        for adapter in loaded_adapters():
            if why := adapter.why_not_now():
                raise StoreUnfitError(why)
        values = self._gathered(loop, look.lengths() if lengths is None else lengths)
        look.expect_room(values.total_bytes)
        require_file_size([values.stream, *values.buffers])
        save = Save(
            self._number,
            self._order.attempt,
            time.time(),
            place,
            values.total_bytes,
            results=values.results,
            notes=values.notes,
            round=None if loop is None else loop.rounds + 1,
            rounds=None if loop is None else loop.total,
            ran_s=time.monotonic() - self._began_s,
        )
        return TakenSave(save, values)

    def _gathered(self, loop: ResumableLoop | None, lengths: dict[str, int]) -> Collected:
        anew, state, patches = self._bound_anew(loop), self._state(loop, lengths), self._set_in_libraries()
        try:
            return self._values.save(state, anew=anew, may_read=self._may_read(loop), set_in_libraries=patches)
        except ImmovableError:
            raise
        except Exception as error:
            if (current := self._checkpoints.current) is not None:
                trouble = find_trouble("state", current["state"], self._values.realm, error)
                raise ImmovableError(in_words("state", current["state"], str(trouble))) from error
            raise ImmovableError(f"{type(error).__name__}: {error}") from error

    def _set_in_libraries(self) -> dict[str, Any]:
        """Attributes to which the cell's code and the notebook's functions assign."""
        codes = [self._program.code, *library_patches.codes_of(self._namespace)]
        chains: set[str] = set().union(*map(library_patches.stored_attributes, codes))
        return library_patches.values_at(sorted(chains), self._namespace)

    def _bound_anew(self, loop: ResumableLoop | None) -> set[str]:
        """Names that the cell binds before it goes on in the loop."""
        if loop is None:
            return set()
        bars = bars_of(loop.iterator) if loop.header is None else []
        names = {name for bar in bars for name in self._names_of(bar)}
        return {*self._program.loops[loop.number].bound_around, *names}

    def _names_of(self, thing: Any) -> list[str]:
        return [name for name, value in dict.items(self._namespace) if value is thing]

    def _begun_file(self, loop: ResumableLoop | None) -> str:
        """The reason why a file that ``with`` opens again would not be what it is; empty: there is none."""
        if loop is None:
            return self._left_open(())
        place = self._program.loops[loop.number]
        read = place.body_names() - place.header_names()  # what the loop goes over is read on
        values = {name: self._namespace.get(name) for name in sorted(place.bound_around)}
        found = (begun_file(name, value, is_read=name in read) for name, value in values.items())
        if reason := next(filter(None, found), ""):
            return reason
        if place.makes_anew:
            return f"`with {place.makes_anew}` would begin anew what it holds: make it before, or in each round"
        return self._left_open(values.values())

    def _left_open(self, opened_again: Iterable[Any]) -> str:
        """The reason why a file that something writes to would lose what comes; empty: there is none.

        A file that a name holds counts only if the name may be read.
        """
        if self._checkpoints.current is not None:  # all begins anew
            return ""
        files = [value for value in dict.values(self._namespace) if isinstance(value, io.IOBase)]
        path = self._written_files.left([*files, *opened_again])
        return (
            f"{os.path.basename(path)} is open for writing: close it before the loop, or open it in each round"
            if path
            else ""
        )

    def _expect_no_graph(self, loop: ResumableLoop | None) -> None:
        """Raise StoreUnfitError for results that the cell's rest may go back through."""
        if self._checkpoints.current is not None:
            return
        names = self._program.may_go_back(self._statement, None if loop is None else loop.number)
        for name in sorted(names):
            if has_graph(self._namespace.get(name)):
                raise StoreUnfitError(
                    f"`{name}` has a graph of its computation, which does not travel (keep {name}.detach() or .item())"
                )

    def _may_read(self, loop: ResumableLoop | None) -> Callable[[str], bool]:
        """A question that is worked out when it is asked: names that cannot be pickled are rare."""
        if self._checkpoints.current is not None:
            return lambda _name: False
        number = None if loop is None else loop.number

        @cache
        def names() -> set[str]:
            return self._program.may_read(self._statement, number)

        return lambda name: name in names()

    def _state(self, loop: ResumableLoop | None, lengths: dict[str, int]) -> dict[str, Any]:
        state: dict[str, Any] = {"files": lengths, **self._checkpoints.saved()}
        if self._checkpoints.current is not None:
            return state
        state |= {
            **self._states(),
            "group": process_group.capture(self._order.ranks),
            "statement": self._statement,
            "around": self._around,
            "figures": figures.capture(),
            "loop": None if loop is None else loop.number,
        }
        if loop is None:
            return state
        state |= {"rounds": loop.rounds, "total": loop.total, "every_s": loop.every_s, "header": loop.header}
        if loop.header is None:
            state["iterator"] = loop.packed(self._names_of)
        return state


def _in_words(stay: Stay) -> Stay:
    verb = "saved" if stay.for_now else "moved"
    return msgspec.structs.replace(stay, reason=f"it cannot be {verb}: {stay.reason}")


def _resized(save: Save, ranks: int) -> str:
    """Sentence on what became of the ranks' values."""
    before = len(save.parts) + 1
    text = (
        f"{before} rank{'s' if before > 1 else ''} before, {ranks} now: rank 0's values and random numbers went to all"
    )
    own = list(dict.fromkeys(name for part in save.parts for name in part.own))
    if not own:
        return text
    more = f" and {len(own) - _MOST_NAMED} more" if len(own) > _MOST_NAMED else ""
    named = ", ".join(f"`{name}`" for name in own[:_MOST_NAMED])
    return f"{text}; the other ranks' own values of {named}{more} were dropped"


def _lost_header(loop: ResumableLoop | None) -> str:
    """The reason why a loop's header cannot be evaluated again; empty: it can, or need not."""
    if loop is None or loop.header is None:
        return ""
    if loop.large != large_digests(loop.header.get("buffers", ())):
        return "an array that the loop's header reads has changed, and it is too large to be kept as it was"
    if not loop.header:  # `resumable` was called by another name
        return "the loop's header does not call resumable() by its name"
    return loop.header["lost"][0] if loop.header["lost"] else ""


def _kept(buffer: memoryview) -> Any:
    """A copy, as it is now; of much (a data set) only a view of what it will be."""
    numpy = sys.modules.get("numpy")
    if buffer.nbytes <= _COPIED_BYTES or numpy is None:
        return bytes(buffer)
    return numpy.frombuffer(buffer, "u1")


def large_digests(buffers: Iterable[Any]) -> list[bytes]:
    """Digests of those of which there is only a view."""
    return [blake3(buffer, max_threads=2).digest() for buffer in buffers if not isinstance(buffer, bytes)]


def _is_resumable(name: str, value: Any) -> bool:
    return name == "resumable" or getattr(value, "__qualname__", "") == "resumable"


def _expect_nothing_running() -> None:
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
