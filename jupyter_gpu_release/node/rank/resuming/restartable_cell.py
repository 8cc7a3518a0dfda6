"""A cell that may be preempted: runs its statements, stops at safe points, is resumed from a save."""

from __future__ import annotations

import ast
import builtins
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from ....adapters.adapter import GroupState, ImmovableError
from ....adapters.registry import loaded_adapters, restore_group
from ....analysis.resumable_loops import plain_loops, word_of
from ....protocol.runs import Save
from ....serialization import codec
from ....serialization.sharing.replace import ReferenceReplacer
from ....store.layout import RunPaths
from ....units import format_seconds
from ...ipc.frames import RankOrder, Stay
from ...ipc.notice import Flag, Notice, Word
from ...values import frameworks
from . import figures, random_state
from .cell_program import LOOK, LOOPS, CellProgram, LoopNode
from .headers import Headers
from .loops import Header, Loop, length_of
from .places import FirstLook, Places, SetRest, can_be_saved, is_container, is_evaluated
from .preempted import Preempted, RunNodes, TakenSave
from .pulse import Pulse
from .run_files import FilesSnapshot, set_back
from .save_pace import SavePace
from .saver import Saver, SaverReport, stay_of, tried
from .saves import SavedNames, Saves, expect_nothing_running

if TYPE_CHECKING:
    from .gang_save import GangSave

_MOST_NAMED = 8


class RestartableCell:
    """One attempt of a cell. ``flush_files``: writes what the cell's open files hold back. ``named``: lines of loops
    of which the notebook has said that the cell cannot be left between their rounds. ``installed``: packages that the
    cell has installed for this attempt.
    """

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
        named: Iterable[int] = (),
        installed: Callable[[], list[str]] = list,
        gang: GangSave | None = None,
        ask_for_save: Callable[[], None] = lambda: None,
    ) -> None:
        self._order = order
        self._values = values
        self._notice = notice
        self._namespace = namespace
        self._flush_files = flush_files
        self._installed = installed
        self._say = say
        self._tell_stay = stay
        self._tell_saved = saved
        #: of several ranks
        self._gang = gang
        self._ask_for_save = ask_for_save
        self._files = RunPaths(Path(order.folder)).files
        self._saves = Saves(order, values, namespace)
        self._checkpoints = self._saves.checkpoints
        self._headers = Headers(namespace, values.realm)
        self._header: Header | None = None
        #: names as they are, while a header is evaluated again
        self._names_now: dict[str, Any] = {}
        #: lines of loops of which the user was told that the cell cannot be left between their rounds
        self._named = set(named)
        self._said: set[str] = set()
        self._is_immovable = self._is_of_size = self._is_unsaved = False
        #: of the attempt before, until the cell is where that was
        self._left: dict[str, Any] | None = None
        #: the run's files, as that left them
        self._left_files: dict[str, int] = {}
        self._loop: Loop | None = None
        self._pace = SavePace(time.monotonic())
        self._due_s = float("inf")
        self._pulse = Pulse(notice.look_up, order.preempt_grace_s, self._on_long_round)
        #: ranks of a gang look up before each round
        self._look: Flag = notice.page if gang is None else (1,)
        self._saver: Saver | None = None
        #: with this the attempt ends
        self.taken: TakenSave | None = None
        #: keeps interrupts out, lets them in
        self.close_gate: Callable[[], None] = lambda: None
        self.open_gate: Callable[[], None] = lambda: None

    def go_on_from(self, state: dict[str, Any]) -> None:
        """Let :meth:`run_statements` begin where an earlier attempt was preempted; its names are bound.

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
        return restore_group(made, self._order.rank, self._order.ranks)

    def _join_again(self, group: GroupState) -> None:
        for adapter in loaded_adapters():
            adapter.join_again(group)
        if group.groups and self._is_resized:
            for adapter in loaded_adapters():
                adapter.resize_samplers()

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
            is_ours = save is None or save.is_of_this_format
            self._say("again from the beginning" if save is None or not is_ours else f"again from {save.place}")
            if not is_ours:
                self._say("what it had saved is of another version of jupyter_gpu_release")
            elif save is not None and self._is_resized:
                self._say(_resized(save, self._order.ranks))
        if self._gang is not None:
            self._gang.meet()

    # ------------------------------------------------------------------------------- statements
    async def run_statements(self, nodes: list[ast.stmt], interactivity: str, run: RunNodes) -> bool:
        """Run the cell's statements, as IPython's ``run_ast_nodes`` does; True: it failed, or was preempted."""
        for line, reason in plain_loops(nodes, self._namespace).items():
            self._name_plain(line, reason)
        self._saves.program = CellProgram(nodes)
        setattr(builtins, LOOPS, self)
        setattr(builtins, LOOK, self._look)
        first, statements = self._begin(nodes)
        with self._pulse:
            for number, node in enumerate(statements, first):
                self._end_loop()
                self._saves.statement = number
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
            self._loop.places.end()
        self._loop = None
        self._pulse.note_answer()

    def _begin(self, nodes: list[ast.stmt]) -> tuple[int, list[ast.stmt]]:
        left = self._left
        if left is None:
            return 0, nodes
        first: int = left["statement"]
        if left["loop"] is None:
            self._left = None
            self._saves.set_states(left)
            return first, nodes[first:]
        self._saves.set_states(left["around"] or left)
        self._notice.look_up()  # at the first test of a `while` loop
        is_anew = is_evaluated(left["iterator"])
        return first, self._saves.program.statements_from(first, left["loop"], anew=is_anew)

    def _note_around(self, number: int) -> None:
        """Remember how things are outside of the ``with`` statements that are entered now."""
        saves = self._saves
        saves.around, saves.lost_around = None, ""
        if any(loop.statement == number and loop.is_inside_with for loop in saves.program.loops):
            left = self._left
            saves.around, stay = tried(lambda: saves.states() if left is None else left["around"])
            saves.lost_around = stay.reason if stay is not None else ""

    # ------------------------------------------------------------------------------------ loops
    #: what a cell's own ``try`` lets through
    preempted = Preempted
    #: frames that are in the way of the user's tracebacks
    hidden_codes = frozenset({Loop.items.__code__, SetRest.__next__.__code__})

    def begin(self, number: int) -> Header:
        """Called by the cell before the header of a loop is evaluated."""
        node = self._saves.program.loops[number]
        header = self._header = Header(number)
        if self._left is not None:
            self._names_now = self._headers.begin_again(self._left["iterator"][1])
        elif not node.is_plain:
            header.first = self._first_look(node)
        return header

    def __call__(self, header: Header, items: Any) -> Iterator[Any]:
        """Called by the cell with what the header gave; returns what the loop goes over."""
        self._header = None
        if self._left is not None:
            return self.again(header.number, items)
        node = self._saves.program.loops[header.number]
        if node.is_plain:
            header.first = self._first_look(node, items)
        iterator = iter(items)
        try:
            return self._loop_over(node, header, items, iterator)
        except Exception as error:  # noqa: BLE001 - a defect of ours is never the cell's
            return self._plain(node, iterator, stay_of(error).reason)

    def _loop_over(self, node: LoopNode, header: Header, items: Any, iterator: Any) -> Iterator[Any]:
        is_kept = self._is_kept(header, iterator)
        lost = header.first is None or header.first["lost"]
        if lost and not (is_kept or header.is_marked):
            return self._plain(node, iterator, lost[0] if lost is not True else word_of(iterator))
        loop = Loop(header.number, iterator, self._at_safe_point, self._look)
        loop.is_marked, loop.every_s = header.is_marked, header.every_s
        if header.is_marked or type(items).__module__ != "__main__":
            loop.total = length_of(items)
        if not is_kept:
            loop.places.look_from(header.first or {})
        return self._enter(loop).items()

    def again(self, number: int, evaluated: Iterable[Any] = ()) -> Iterator[Any]:
        """Called by the cell in place of a loop's header. ``evaluated``: what that gave, if it is evaluated again."""
        left = self._left
        assert left is not None
        places = Places(bind=self._namespace.__setitem__)
        places.rounds, places.evaluated = left["rounds"], iter(evaluated)
        loop = Loop(number, places.return_to(left["iterator"]), self._at_safe_point, self._look, places)
        loop.is_marked, loop.every_s, loop.total = left["is_marked"], left["every_s"], left["total"]
        loop.rounds = loop.rounds_before = left["rounds"]
        self._namespace.update(self._names_now)
        self._arrive(left)
        return self._enter(loop).items()

    def at(self, number: int) -> None:
        """Called by the cell before the test of a ``while`` loop, where it is to look up."""
        loop, left = self._loop, self._left
        if loop is None or loop.number != number:
            loop = Loop(number, None, self._at_safe_point, self._look)
            if left is not None:
                loop.rounds = left["rounds"]
                self._arrive(left)
            self._enter(loop)
        self._at_safe_point(loop)
        loop.rounds += 1

    def _is_kept(self, header: Header, iterator: Any) -> bool:
        """Tell if the place of the iterator is saved; else the header is evaluated again, if it can be."""
        if header.first and type(iterator).__module__ == "__main__":
            is_kept, stay = tried(lambda: not codec.dump({"it": iterator}, self._values.realm).failed)
        else:
            is_kept, stay = tried(lambda: can_be_saved(iterator))
        if stay is not None:
            header.first = {"lost": [stay.reason]}
        return bool(is_kept)

    def _plain(self, node: LoopNode, iterator: Iterator[Any], reason: str) -> Iterator[Any]:
        """A loop that is none of ours; the notebook may have said so before."""
        self._end_loop()
        self._name_plain(node.node.lineno, reason)
        return iterator

    def _name_plain(self, line: int, reason: str) -> None:
        if line not in self._named and not self._order.rank and not self._order.attempt:
            self._named.add(line)
            self._say(f"it can be preempted only after the loop in line {line}: {reason}")

    def _tell_size(self) -> None:
        """Have the gateway neither grow nor shrink a gang whose names are spread over its ranks."""
        if not self._order.is_elastic or self._order.rank or self._is_of_size:
            return
        names, ranks = self._namespace, self._order.ranks
        whys = (adapter.why_of_this_size(names, ranks) for adapter in loaded_adapters())
        why, stay = tried(lambda: next(filter(None, whys), ""))
        why = why if stay is None else stay.reason
        if why:
            self._is_of_size = True
            self._tell_stay(Stay(why, of_size=True))
            self._say(why)

    def _enter(self, loop: Loop) -> Loop:
        self._tell_size()
        self._loop = loop
        self._set_pace(loop.every_s)
        return loop

    def _set_pace(self, every_s: float | None) -> None:
        self._pace.set_every(0.0 if self._order.rank else every_s)  # rank 0 sees when a gang is to be saved
        self._set_due()

    def _arrive(self, left: dict[str, Any]) -> None:
        self._left = None
        self._headers.end_again()
        self._saves.set_states(left)

    def on_resumable(self, every_s: float | None, caller: FrameType) -> None:
        """``resumable`` was called, by ``caller``."""
        if self._header is not None and caller.f_locals is self._namespace:
            self._header.is_marked, self._header.every_s = True, every_s
        else:
            self._say_once(
                "resumable() is a plain loop here: the cell can be preempted in loops at its top level "
                "(or there inside with, if or try); in functions it can at checkpoint(state), see restore()"
            )

    def _first_look(self, node: LoopNode, items: Any = None) -> FirstLook | None:
        """``items``: what the header gave, where to evaluate it has changed nothing."""
        look, stay = tried(lambda: None if is_container(items) else self._headers.look(node))
        return look if stay is None else {"lost": [stay.reason]}

    # ------------------------------------------------------------------------------ safe points
    def on_checkpoint(self, state: Any, every_s: float | None) -> None:
        """``checkpoint`` was called."""
        if self._checkpoints.is_elsewhere:
            return
        if self.taken is not None:  # the code has caught it
            raise Preempted
        if self._order.ranks > 1:
            self._say_once("checkpoint() does nothing in a gang: it is preempted between rounds of its loops")
            return
        if self._loop is not None and self._loop.is_marked:
            self._say_once("checkpoint() does nothing in a resumable() loop: the cell is preempted between its rounds")
            return
        if self._checkpoints.is_unread:
            self._say_once("checkpoint() without restore(): a run that goes on later begins again, without the state")
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
        if any(adapter.has_group() for adapter in loaded_adapters()):
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

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _on_long_round(self) -> None:
        """Called on the pulse's thread."""
        saves, loop, grace_s = self._saves, self._loop, self._order.preempt_grace_s
        if self._order.rank or self._is_immovable:
            return
        what = "it" if loop is None else f"a round of the loop in line {saves.program.loops[loop.number].node.lineno}"
        self._say_once(
            f"{what} has run for {format_seconds(grace_s)} without a safe point, as long as the queue gives: preempted "
            "there, the cell would be ended and go on from its last save"
        )

    def _at_safe_point(self, loop: Loop | None) -> None:
        if self._checkpoints.is_elsewhere:  # a fork of the cell's
            return
        self._notice.look_down()
        self._pulse.note_answer()
        if time.monotonic() >= self._due_s:
            self._on_due(loop)
        if self._is_asked("", loop):
            raise Preempted

    def _is_asked(self, place: str, loop: Loop | None) -> bool:
        """Tell if the cell is to be preempted here, and is saved. ``place``: where it is, if that is known."""
        if self._gang is not None:
            return self._is_asked_with_others(self._gang, place, loop)
        return self._notice.word is Word.PREEMPT and self._has_saved(place, loop)

    def _is_asked_with_others(self, gang: GangSave, place: str, loop: Loop | None) -> bool:
        number = self._number_of(loop)
        word = self._notice.ask_at(number)
        if word is Word.PREEMPT and self._has_saved(place, loop):
            return True
        if word is Word.SAVE:
            self._save_with_others(gang, loop)
        if word:
            self._notice.go_behind(number)
        return False

    def _number_of(self, loop: Loop | None) -> int:
        """This safe point's number: higher than those before it, and the same in all ranks."""
        if loop is not None:
            return (self._saves.statement + 1) << 49 | (loop.number + 1) << 36 | (loop.rounds + 1)
        return (self._saves.statement + 1) << 49 | self._checkpoints.count

    def _on_due(self, loop: Loop | None) -> None:
        """Save in a fork while the cell goes on; before the first time see if it could be moved."""
        is_trial = self._pace.is_trial(began_s := time.monotonic())
        if self._saver is None or self._saver.is_over:
            self._save_beside(lambda: self._begin_due(loop, is_trial=is_trial))
        self._note_saved(began_s, was_trial=is_trial)

    def _begin_due(self, loop: Loop | None, *, is_trial: bool) -> Saver | None:
        if self._gang is not None and not is_trial:  # all ranks together, soon
            self._ask_for_save()
            return None
        if is_trial and frameworks.has_touched_gpu():  # to try it would copy all that is there
            return None
        return self._begin_save(loop, self._look_around(), is_trial=is_trial)

    def _save_with_others(self, gang: GangSave, loop: Loop | None) -> None:
        began_s = time.monotonic()
        self._save_beside(lambda: self._begin_save_with_others(gang, loop), tells=not self._order.rank)
        self._note_saved(began_s, was_trial=False)

    def _begin_save_with_others(self, gang: GangSave, loop: Loop | None) -> Saver:
        files: FilesSnapshot | None = None
        stay: Stay | None = Stay("", for_now=True)  # the save before is not finished
        if self._saver is None or self._saver.is_over:
            files, stay = tried(self._look_around)
        self.open_gate()  # the others may take as long as a round
        lengths = gang.meet_for_save(stay, lambda: FilesSnapshot(self._files).lengths())
        self.close_gate()
        assert files is not None
        return self._begin_save(loop, files, lengths, is_trial=False)

    def _save_beside(self, begin: Callable[[], Saver | None], *, tells: bool = True) -> None:
        self.close_gate()  # no half of a save, and no interrupt for the fork
        try:
            saver, stay = tried(begin)
            if stay is None:
                self._saver = saver
            else:
                self._on_unsaved(stay, tells=tells and bool(stay.reason))
        finally:
            self.open_gate()

    def _note_saved(self, began_s: float, *, was_trial: bool) -> None:
        now_s = time.monotonic()
        self._pace.note_done(now_s, now_s - began_s, was_trial=was_trial)
        self._set_due()

    def _set_due(self) -> None:
        self._due_s = float("inf") if self._is_immovable else self._pace.due_s
        self._pulse.set_due(self._due_s)

    def _begin_save(
        self, loop: Loop | None, files: FilesSnapshot, lengths: dict[str, int] | None = None, *, is_trial: bool
    ) -> Saver:
        place = self._saves.place_of(loop)
        if not is_trial:
            self._saves.number += 1
        if not frameworks.has_touched_gpu():
            numbers = random_state.capture()  # the module `random` begins anew in a fork

            def save() -> TakenSave:
                random_state.restore(numbers)
                return self._saves.make(place, loop, files, lengths)

            return Saver(lambda: self._saved_beside(save, is_trial), self._on_report)
        taken = self._saves.make(place, loop, files, lengths)  # a fork cannot read what is on a GPU
        return Saver(lambda: self._saved_beside(lambda: taken, is_trial), self._on_report)

    def _saved_beside(self, save: Callable[[], TakenSave], is_trial: bool) -> SaverReport:
        """Carried out in the fork."""
        taken = save()
        return SaverReport() if is_trial else SaverReport(self._saves.write(taken))

    def _on_report(self, report: SaverReport) -> None:
        """Called on the thread that follows the saver."""
        if report.save is not None:
            self._tell_saved(report.save)
        if report.stay is not None:
            self._on_unsaved(report.stay)

    def _on_unsaved(self, stay: Stay, *, tells: bool = True) -> None:
        if not stay.for_now:
            self._is_immovable = True
            self._set_due()
            if tells:
                self._tell_stay(_in_words(stay))
        elif tells and not self._is_unsaved:
            self._is_unsaved = True
            self._say(f"{_in_words(stay).reason}; it is tried again")

    def end_saver(self) -> None:
        """The attempt ends, or is saved now: nobody waits for what is under way."""
        if self._saver is not None:
            self._saver.dismiss()

    def _has_saved(self, place: str, loop: Loop | None) -> bool:
        """Save what the cell has made; False: that is not possible, and the cell goes on."""
        self._saves.number += 1
        taken, stay = tried(lambda: self._taken_now(place or self._saves.place_of(loop), loop))
        if stay is None:
            self.taken = taken
        else:
            self._stay(stay)
        return self.taken is not None

    def _taken_now(self, place: str, loop: Loop | None) -> TakenSave:
        """The save; then interrupts are kept out."""
        self.end_saver()
        self._tell_size()
        if self._gang is None:
            return self._take(place, loop)

        def take() -> TakenSave:
            taken = self._take(place, loop)
            self.open_gate()  # the others may take as long as a round
            return taken

        taken = self._gang.save_all(take, self._expect_room)
        self.close_gate()
        return taken

    def _take(self, place: str, loop: Loop | None) -> TakenSave:
        self.close_gate()  # an interrupt comes before or after it
        taken = None
        try:
            taken = self._saves.make(place, loop, self._look_around())
        finally:
            if taken is None:
                self.open_gate()
        return taken

    def _expect_room(self, size: int) -> None:
        files = FilesSnapshot(self._files)
        files.lengths()
        files.expect_room(size)

    def _stay(self, stay: Stay) -> None:
        if self._gang is None:
            self._notice.take_back()
        if not self._order.rank:
            self._tell_stay(_in_words(stay))

    def _look_around(self) -> FilesSnapshot:
        """Do what must be done at the very moment of a save, before a fork: files go on growing."""
        if self._checkpoints.current is None:  # from a checkpoint all of it begins anew
            expect_nothing_running()
            if names := self._installed():
                raise ImmovableError(
                    f"it has installed {', '.join(names)}, which would not be there (`--pip` adds them)"
                )
        self._flush_files()
        files = FilesSnapshot(self._files)
        files.lengths()
        return files


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
