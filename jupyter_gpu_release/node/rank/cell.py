"""One order in a rank: load what the cell reads, run it in the ready IPython shell, hand over what it made."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from ...adapters.gpu_memory import GpuMemoryLimit
from ...analysis.cell_facts import EXIT_CODE
from ...cell_api import tracked_files
from ...cell_api.context import ExecutionContext, set_context
from ...cell_api.ranks import set_rank_context
from ...errors import GpuReleaseError, RankError, StoreError
from ...protocol.cell import INLINE_LIMIT_BYTES, CellPayload, Graph
from ...protocol.config import UnixUser
from ...protocol.fetch import REPORT, Answer
from ...protocol.runs import ErrorInfo, Outcome, Save
from ...protocol.wire import decode, encode
from ...serialization import exceptions
from ...serialization.process_state.local_modules import ImportWatch
from ...store import ownership
from ...store.graph_file import read_graph
from ...store.layout import VALUES_FILE, RunPaths, of_attempt
from ..gang.channel import RankChannel, make_rank_context
from ..ipc import frames as ipc_frames
from ..ipc.frames import Go, Kind, RankOrder, died_outcome
from ..ipc.lines import RankLines
from ..ipc.plain_values import plain_outcome
from ..results.persister import fork_persister
from ..run_packages import RunPackages
from ..supervisor.written_files import WrittenFiles, written_to
from ..values.collected_values import Collected
from ..values.frameworks import error_hints, lacks_gpu, part_hint
from ..values.gather import gather_names
from ..values.names_on_request import hold_back
from ..values.namespace import RankValues
from ..values.settings import CellSettings
from . import environment
from .environment import use_front_end
from .fetching import Fetcher
from .import_log import ImportLog
from .items import ItemExchange
from .loop import CellLoop
from .output import OutputSender
from .publish import Publisher
from .setup import RankSetup
from .shell import RankShell, use_inline_figures
from .spawned import serve_names

if TYPE_CHECKING:
    from .resuming.gang_save import GangSave
    from .resuming.preempted import TakenSave
    from .resuming.restartable_cell import RestartableCell

#: exit status of a shell
_COMMAND_NOT_FOUND = 127
_SIMULATED = "the GPUs are simulated: CUDA finds none, and what asks `torch.cuda.is_available()` takes the CPU"


class Rank:
    """Carries out one order on the process's main thread."""

    def __init__(
        self, order: RankOrder, outlet: OutputSender, lines: RankLines, shell: RankShell, loop: CellLoop
    ) -> None:
        self._order = order
        self._loop = loop
        self._outlet = outlet
        self._sock = lines.sock
        self._lines = lines
        self._shell = shell
        self._notes: list[str] = []
        self._granted_s: float | None = None
        self._gpus = 0
        self._started: float | None = None
        self._files = WrittenFiles()
        self._publisher: Publisher | None = None
        self._one_publisher = threading.Lock()
        self._is_gang = False
        #: graph of the attempt before
        self._saved: tuple[bytes, Sequence[Any]] | None = None
        self._restartable: RestartableCell | None = None
        self._imports = ImportLog()
        #: the notebook's, if it has one
        self._setup: RankSetup | None = None
        #: of a cell that may install some
        self._packages: RunPackages | None = None

    def run_order(self) -> None:
        """Load, run the cell, hand over what it made; every way ends in an OUTCOME frame."""
        try:
            payload = self._prepare()
        except KeyboardInterrupt:
            self._finish(Outcome(status="interrupted", error=ErrorInfo("KeyboardInterrupt", "")))
        except GpuReleaseError as error:
            self._finish(died_outcome("error", type(error).__name__, error.message, code=error.code, hint=error.hint))
        except Exception as error:  # noqa: BLE001 - the process entry point of foreign unpickling code
            text = f"the inputs could not be loaded on the node: {type(error).__name__}: {error}"
            hint = "hold the name at fault back with --skip NAME and make it inside the cell"
            self._finish(died_outcome("error", "CannotLoadError", text, code="cannot_send", hint=hint))
        else:
            self._run_cell(payload)

    def _prepare(self) -> CellPayload:
        self._order.keep.expect_store()
        self._imports.start_watching()
        if (owner := self._order.owner) is not None:
            _share_files(owner, Path(self._order.folder))
        payload = decode(self._order.payload, CellPayload)
        early = environment.has_notebook_folder(payload)  # else its folder is the run's, which need not be there yet
        problem = self._enter(payload) if early else None
        go = self._await_grant()
        self._granted_s, self._gpus = time.time(), len(go.gpu_ids)
        self._part, self._part_bytes = go.part, go.part_bytes
        self._address, self._is_gang = go.address, bool(go.environment)
        problem = problem if early else self._enter(payload)
        if problem is not None:
            raise problem
        environment.set_visible_gpus(go.gpu_ids, simulated=self._order.simulated)
        environment.set_rank_variables(go, payload)
        if go.part:
            limit = GpuMemoryLimit(go.part, go.part_bytes, self._notes)
            limit.set_loaded()
            ImportWatch(limit.concerns, limit.set_imported, at_once=True).start_watching()
            self._settings.watch_environment()  # the limit is not the cell's
        if self._order.ranks > 1 or self._order.role != "rank":
            set_rank_context(make_rank_context(self._order, go, self._channel, lambda: self._values.realm))
        if self._setup is not None:
            self._setup.run_the_rest()
        self._load(payload, has_gpu=bool(go.gpu_ids) and not self._order.simulated)
        return payload

    def _enter(self, payload: CellPayload) -> Exception | None:
        """Do what can be done without a GPU; returns the problem, which is reported once the run is granted."""
        try:
            use_front_end(self._shell, payload)
            self._notes += environment.set_cell_environment(self._order, payload)
            if payload.installs:
                self._packages = RunPackages(self._lines.packages)
            self._shell.execution_count = payload.count
            self._inputs = read_graph(payload.inputs, Path(self._order.folder))
            if (save := self._order.save) is not None and save.values is not None and save.is_of_this_format:
                self._saved = self._read_save(save, save.values)
            if payload.setup:
                self._setup = RankSetup(self._shell, payload)
                self._setup.run_before_grant()
            self._settings = CellSettings(payload)
            serve_names(lambda: self._values.realm)
        except Exception as error:  # noqa: BLE001 - raised by the caller
            return error
        return None

    def _read_save(self, save: Save, values: Graph) -> tuple[bytes, Sequence[Any]]:
        """This rank's part; of a gang that has another size now, rank 0's."""
        rank, folder = self._order.rank, Path(self._order.folder)
        if not rank or len(save.parts) + 1 != self._order.ranks:
            return read_graph(values, folder)
        part = save.parts[rank - 1]
        if part.values is not None:
            return read_graph(part.values, folder)
        _stream, buffers = read_graph(values, folder)
        stream, *own = [buffers[number] for number in part.buffers]
        return bytes(stream), own

    def _await_grant(self) -> Go:
        frame = ipc_frames.receive_frame(self._sock)
        if frame is None:  # the lease was not granted
            os._exit(0)
        return decode(frame[1], Go)

    def _load(self, payload: CellPayload, *, has_gpu: bool) -> None:
        stream, buffers = self._inputs
        names = hold_back(self._shell, self._fetcher(payload).fetch) if payload.held else None
        self._values = RankValues(
            self._shell.user_ns,
            payload,
            stream,
            buffers,
            has_gpu=has_gpu,
            settings=self._settings,
            origins=None if self._setup is None else self._setup.origins,
        )
        with self._shell.builtin_trap:  # libraries that are imported now look for IPython among the builtins
            self._notes += self._values.load(keep=self._saved is not None)
        if payload.told:
            ownership.learn_results(payload.told)
        folder = RunPaths(Path(self._order.folder), self._order.attempt)
        set_context(
            ExecutionContext(
                realm=lambda: self._values.realm,
                find_target=None,
                store=lambda: str(folder.folder.parent.parent),
                publish=self._publish,
                report=lambda step, value: self._outlet.add_event(REPORT, {"step": step, "value": value}),
                items=lambda: ItemExchange(self._outlet, self._sock, self._values.realm, folder, self._shell.lines_of),
                resumable=lambda every_s, caller: self._on_resumable(every_s, caller),
                checkpoint=lambda state, every_s: self._on_checkpoint(state, every_s),
                restore=lambda: self._restartable.on_restore() if self._restartable is not None else None,
                gateway=lambda: self._order.access,
                in_run=True,
            )
        )
        use_inline_figures(self._shell)
        if environment.limit_threads(self._order):
            self._values.watch_threads()
        self._files.start_recording()
        tracked_files.HERE.start_recording()
        if names is not None:
            names.hold_names(payload.held)
        if self._order.restartable:
            self._get_restartable(payload)

    def _get_restartable(self, payload: CellPayload) -> None:
        """Only such cells know of resuming; what an earlier attempt has saved is bound."""
        from .resuming.restartable_cell import RestartableCell

        cell = RestartableCell(
            self._order,
            self._values,
            self._lines.notice,
            self._shell.user_ns,
            flush_files=flush_open_files,
            say=lambda text: self._outlet.add_event("note", {"text": text}),
            stay=lambda stay: self._outlet.send_frame(Kind.STAY, encode(stay), wait=False),
            saved=lambda save: self._outlet.send_frame(Kind.SAVED, encode(save), wait=False),
            named=payload.plain_loops,
            installed=self._packages.installed if self._packages is not None else list,
            gang=self._gang_save() if self._order.ranks > 1 else None,
            ask_for_save=lambda: self._outlet.send_frame(Kind.SAVE_DUE, b"", wait=False),
        )
        cell.close_gate, cell.open_gate = self._shell.gate.close, self._shell.gate.open
        if self._saved is not None:
            cell.go_on_from(self._values.restore(*self._saved, cell.join))
            self._saved = None
        if self._order.attempt and not self._order.is_unbegun:
            cell.set_files_back()
        self._shell.hidden_codes |= cell.hidden_codes
        self._restartable = self._shell.restartable = cell

    def _gang_save(self) -> GangSave:
        from .resuming.gang_save import GangSave

        return GangSave(self._order.rank, self._channel, Path(self._order.folder), self._address)

    def _on_resumable(self, every_s: float | None, caller: FrameType) -> None:
        if self._restartable is not None:
            self._restartable.on_resumable(every_s, caller)

    def _on_checkpoint(self, state: Any, every_s: float | None) -> None:
        if self._restartable is not None:
            self._restartable.on_checkpoint(state, every_s)

    @cached_property
    def _channel(self) -> RankChannel:
        """Where ranks meet; most runs have one rank, which meets nobody."""
        return RankChannel(self._lines.channel)

    def _publish(self, values: Mapping[str, Any]) -> None:
        with self._one_publisher:  # most runs publish nothing
            if self._publisher is None:
                paths = RunPaths(Path(self._order.folder), self._order.attempt)
                self._publisher = Publisher(self._outlet, self._values.realm, paths, self._order.rank)
        self._publisher.publish(values)

    def _fetcher(self, payload: CellPayload) -> Fetcher:
        paths = RunPaths(Path(self._order.folder))

        def take(name: str, answer: Answer) -> Any:
            stream, buffers = read_graph(answer.graph, paths.folder)
            return self._values.take_fetched(name, stream, buffers, answer.first)

        return Fetcher(self._outlet, self._sock, payload.held, take)

    def _run_cell(self, payload: CellPayload) -> None:
        if self._order.mark and not self._order.as_owner:
            with contextlib.suppress(OSError):  # no disk, no agent's folder: then it would be run again
                os.close(os.open(self._order.mark, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self._started, self._imports.has_begun = time.time(), True
        self._outlet.send_frame(Kind.RUNNING, encode(self._started), wait=False)
        if self._order.as_owner:  # the supervisor has left the mark
            self._outlet.sync()
        ended = self._loop.run(payload)
        self._imports.stop_watching()
        if not self._outlet.is_own_process:
            _end_fork(ended.error)
        self._values.stop_fetching()
        if self._is_gang and _is_good_exit(ended.error):
            ended.error = None
        if self._restartable is not None:
            self._restartable.end_saver()
            if self._restartable.taken is not None:
                self._end_preempted(self._restartable.taken)
                return
        ended_s = time.time() if ended.error is None else self._shell.failed_at_s or time.time()
        error = None if ended.error is None else self._describe(ended.error, ended.interrupted)
        self._outlet.send_frame(Kind.ENDED, encode(ended_s))
        self._values.error, self._values.shown = ended.error, self._shell.displayhook.shown
        self._notes += ended.notes
        if self._packages is not None:
            self._notes += self._packages.notes()
        if error is not None:
            self._notes += error_hints(error.evalue, self._order.ranks, self._gpus)
            self._notes += part_hint(f"{error.ename}: {error.evalue}", self._part, self._part_bytes)
        if self._order.simulated and self._looked_in_vain(payload, error):
            self._notes.append(_SIMULATED)
        status = "interrupted" if ended.interrupted else "ok" if error is None else "error"
        if status == "ok" and payload.gather and self._order.role == "rank":
            status, error = self._gather(payload)
        self._hand_over(status, error, ended_s)

    def _looked_in_vain(self, payload: CellPayload, error: Any) -> bool:
        """Tell if the cell asked for a GPU that is only simulated."""
        asked = "nvidia-smi" in payload.source and self._shell.user_ns.get(EXIT_CODE) == _COMMAND_NOT_FOUND
        return asked or (error is not None and lacks_gpu(error.evalue))

    def _end_preempted(self, taken: TakenSave) -> None:
        """Hand over the save as if it were the results: a run that goes on no more has it as such."""
        ended_s = time.time()
        self._outlet.send_frame(Kind.ENDED, encode(ended_s))
        values, what_else = taken.values, self._what_else_it_did()
        if self._order.rank:
            self._finish(Outcome(status="preempted", notes=self._notes, ended_s=ended_s, **what_else))
            return
        outcome = Outcome(
            status="preempted",
            results=values.results,
            notes=self._notes + values.notes,
            save=taken.save,
            granted_s=self._granted_s,
            started_s=self._started,
            ended_s=ended_s,
            collected_s=ended_s,
            **what_else,
        )
        self._send_values(outcome, values)

    def _gather(self, payload: CellPayload) -> tuple[str, ErrorInfo | None]:
        if self._order.ranks == 1:
            names = self._shell.user_ns
            names.update({name: [names[name]] for name in payload.gather if name in names})
            return "ok", None
        paths = RunPaths(Path(self._order.folder), self._order.attempt)
        try:
            names, rank = self._shell.user_ns, self._order.rank
            realm, address = self._values.realm, self._address
            self._notes += gather_names(payload.gather, names, realm, paths, self._channel, rank, address)
        except RankError as error:  # the run fails for that rank's reason, not for this one
            self._notes.append(f"{', '.join(payload.gather)} not gathered: {error.message}")
        except GpuReleaseError as error:
            return "error", ErrorInfo(type(error).__name__, error.message, code=error.code, hint=error.hint)
        except Exception as error:  # noqa: BLE001 - foreign reducers
            return "error", ErrorInfo(
                "CannotSendError", f"--gather: {type(error).__name__}: {error}", code="cannot_send"
            )
        return "ok", None

    def _describe(self, error: BaseException, interrupted: bool) -> ErrorInfo:
        name = "KeyboardInterrupt" if interrupted else type(error).__name__
        lines = self._shell.traceback_lines
        if interrupted:  # at an `await` the cell was cancelled; users know that as an interrupt
            lines = [line.replace("CancelledError", "KeyboardInterrupt") for line in lines]
        text = exceptions.error_text(error)
        shown: dict[str, Any] = {"ename": name, "evalue": text, "traceback": lines}
        if self._order.rank:
            shown["rank"] = self._order.rank
        self._outlet.add_event("error", shown)
        pickled = b""
        if not interrupted:
            with contextlib.suppress(Exception):  # the user's class may be odd in any way
                pickled = exceptions.pack_error(error)
        return ErrorInfo(ename=name, evalue=text, traceback=lines, pickled=pickled)

    def _hand_over(self, status: str, error: ErrorInfo | None, ended_s: float) -> None:
        outcome_facts: dict[str, Any] = {
            "status": status,
            "error": error,
            "granted_s": self._granted_s,
            "started_s": self._started,
            "ended_s": ended_s,
        }
        outcome_facts |= self._what_else_it_did()
        if self._order.rank:
            self._finish(Outcome(notes=self._notes, frames=self._frames_of(status), **outcome_facts))
            return
        try:
            collected = self._loop.context.run(self._values.collect)
        except Exception as problem:  # noqa: BLE001 - reducers are foreign code; the run must still end well
            note = f"nothing came back: {type(problem).__name__}: {problem}"
            self._finish(Outcome(notes=[*self._notes, note], **outcome_facts))
            return
        outcome_facts |= {"collected_s": time.time(), "metric": self._values.metric() if status == "ok" else {}}
        outcome = Outcome(results=collected.results, notes=self._notes + collected.notes, **outcome_facts)
        self._send_values(outcome, collected)

    def _frames_of(self, status: str) -> dict[int, Graph]:
        """Names are rank 0's only, but any rank may be the one to debug."""
        if status != "error":
            return {}
        try:
            frames = self._loop.context.run(self._values.frames_of_error)
        except Exception:  # noqa: BLE001 - reducers are foreign code, and a debugger is not worth an outcome
            return {}
        return {self._order.rank: frames} if frames is not None else {}

    def _what_else_it_did(self) -> dict[str, Any]:
        try:
            return self._look_after_files()
        except Exception as problem:  # noqa: BLE001 - a cell can break any module: that must not cost its names
            self._notes.append(f"files and published values were not looked after: {type(problem).__name__}: {problem}")
            return {}

    def _look_after_files(self) -> dict[str, Any]:
        flush_open_files()
        if self._publisher is not None and not self._publisher.finish():
            self._notes.append("not all published values were sent: the store does not answer")
        self._tell_files()
        return {
            "tracked": tracked_files.HERE.tracked_files(),
            "imported": self._imports.imported if not self._order.rank else [],
            "untouched_reason": self._values.untouched_reason() or "",
        }

    def _send_values(self, outcome: Outcome, collected: Collected) -> None:
        if collected.total_bytes <= INLINE_LIMIT_BYTES:
            raw = [bytes(buffer) for buffer in collected.buffers]
            self._finish(msgspec.structs.replace(outcome, values=Graph(stream=collected.stream, buffers=raw)))
            return
        kept = _sendable(
            msgspec.structs.replace(outcome, values=Graph(file=of_attempt(VALUES_FILE, self._order.attempt)))
        )
        try:
            forked = fork_persister(self._order, kept, collected.stream, collected.buffers, collected.total_bytes)
        except StoreError as error:
            self._finish(_without_results(outcome, error))
            return
        self._outlet.send_frame(Kind.PERSISTER, encode(forked.pid))
        self._finish(kept)
        forked.wait_until_closed()

    def _finish(self, outcome: Outcome) -> None:
        self._outlet.send_frame(Kind.OUTCOME, encode(_sendable(outcome)))

    def _tell_files(self) -> None:
        """The supervisor looks at what was written: a filesystem that hangs must not hold up who has the GPU."""
        if self._started is not None:
            where = written_to(self._files.paths, self._started, RunPaths(Path(self._order.folder)).files)
            self._outlet.send_frame(Kind.FILES, encode(where), wait=False)


def _end_fork(error: BaseException | None) -> NoReturn:
    """End of a process that the cell has forked and that came out of the cell: the run's results are its parent's."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        with contextlib.suppress(Exception):  # the user's class, and the user's stream, may be odd in any way
            sys.stderr.write("".join(traceback.format_exception(error)))
    flush_open_files()
    os._exit(code & 0xFF)


def _without_results(outcome: Outcome, why: StoreError) -> Outcome:
    """The outcome of a cell whose results cannot be kept: that is its error, unless it has one of its own.

    A cell that was to go on later begins again from the save before.
    """
    if outcome.error is not None or outcome.status == "preempted":
        notes = [*outcome.notes, f"no results: {why.message}"]
        return msgspec.structs.replace(outcome, results=[], save=None, notes=notes)
    error = ErrorInfo(ename=type(why).__name__, evalue=why.message, code=why.code, hint=why.hint)
    return msgspec.structs.replace(outcome, status="error", results=[], error=error)


def _share_files(owner: UnixUser, folder: Path) -> None:
    """Load what the run's owner has written; where a group shares the store, let it have what the cell writes, too."""
    from ...store.files import is_shared

    ownership.trust(owner.uid)
    with contextlib.suppress(OSError):  # the folder need not be there yet
        if is_shared(folder):
            os.umask(0o007)


def _is_good_exit(error: BaseException | None) -> bool:
    """A program of a gang may end with ``sys.exit(0)``, as under its own launcher; a cell is told that it was left."""
    return isinstance(error, SystemExit) and not error.code


def _sendable(outcome: Outcome) -> Outcome:
    """Without texts of the user's own string classes and odd file names, where there are any."""
    try:
        encode(outcome)
    except (TypeError, ValueError):
        return plain_outcome(outcome)
    return outcome


def flush_open_files() -> None:
    """Files the cell left open: their buffers would be lost with the process."""
    for thing in gc.get_objects():
        # by its type: isinstance would ask the object for its class, and a dead weak proxy raises then
        if issubclass(type(thing), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            with contextlib.suppress(Exception):
                thing.flush()
