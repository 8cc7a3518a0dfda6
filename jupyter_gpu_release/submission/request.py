"""From a cell to a request: its names collected, large inputs on the store, one record for the gateway."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .._version import __version__
from ..analysis.dataflow import may_install
from ..analysis.sources import gpu_cell_name
from ..errors import OptionError, StoreError
from ..options.run_options import RunOptions
from ..protocol.cell import INLINE_LIMIT_BYTES, CellPayload, CellSource, Graph
from ..protocol.rest import EstimateQuestion
from ..protocol.runs import RunRequest
from ..protocol.session import Welcome
from ..protocol.states import new_run_id
from ..protocol.wire import encode
from ..store import ownership
from ..store.files import UNLIMITED, Pace
from .capture import CapturedInputs
from .lineage import with_large_digests
from .location import CellLocation, find_front_end, find_workdir
from .selection import NameChoice

if TYPE_CHECKING:
    from ..store.layout import RunPaths

INPUTS_FILE = "inputs.graph"

#: a sixth of the time after which a folder that no gateway knows is abandoned
_KEEP_S = 600.0


@dataclass(frozen=True)
class Cell:
    """One cell (or line) to run: its code without the magic's line, its options, where it stands."""

    body: str
    options: RunOptions
    place: CellLocation
    in_terminal: bool = False
    #: the file name that the kernel would give it as a plain cell
    filename: str = ""
    #: name and text of the launched function whose call ``body`` is
    function: str = ""
    text: str = ""
    #: that call as lists of runs show it
    call: str = ""

    @property
    def source(self) -> CellSource:
        """Its text, for tracebacks; the magic's own lines are blank, so that lines are numbered as in the notebook."""
        count, offset = self.place.count, self.place.line_offset
        name = self.filename or gpu_cell_name(self.body, offset, count)
        return CellSource(name, count, "\n" * offset + self.body)


@dataclass
class Submission:
    """A request ready to be sent, and the folder that was made for it (None: nothing is on the store)."""

    request: RunRequest
    prepared: CapturedInputs
    paths: RunPaths | None = field(default=None)
    _kept_at: float = field(default=float("-inf"))

    def keep_inputs(self) -> None:
        """The gateway is away: its collection, or another cluster's, must not take the inputs for abandoned."""
        now = time.monotonic()
        if self.paths is not None and now - self._kept_at >= _KEEP_S:
            self._kept_at = now
            with contextlib.suppress(OSError):
                os.utime(self.paths.inputs)

    @property
    def has_inputs(self) -> bool:
        """Tell if what was written for it, if anything, is there still."""
        return self.paths is None or self.paths.inputs.exists()

    def again(self) -> Submission:
        """The same for another run; what was written is not written again.

        Raises :class:`StoreError` where that is gone.
        """
        run = new_run_id()
        request = msgspec.structs.replace(self.request, run=run)
        if self.paths is None:
            return Submission(request, self.prepared)
        from ..store.run_folders import create_run_folder

        paths = create_run_folder(self.paths.folder.parent.parent, run)
        try:
            shutil.copyfile(self.paths.inputs, paths.inputs)
        except OSError as error:
            shutil.rmtree(paths.folder, ignore_errors=True)
            raise StoreError(f"the inputs in {self.paths.inputs} cannot be copied: {error.strerror}") from error
        return Submission(request, self.prepared, paths)

    def withdraw(self) -> None:
        """Take the inputs back from the store: the run did not happen."""
        if self.paths is not None:
            shutil.rmtree(self.paths.folder, ignore_errors=True)


def question_of(options: RunOptions, place: CellLocation) -> EstimateQuestion:
    """Ask when a cell with these options would start."""
    return EstimateQuestion(
        options.ask,
        options.queue,
        options.priority,
        options.timeout_s,
        options.keep_s,
        options.keep_auto,
        options.name,
        place.notebook,
        place.cell,
        options.restartable,
    )


def choice_of(options: RunOptions) -> NameChoice:
    """The choices about names that the options make."""
    return NameChoice(
        include=None if options.send is None else list(options.send),
        include_more=list(options.send_more),
        out=None if options.out is None else list(options.out),
        skip=list(options.skip),
        gather=list(options.gather),
        environment=frozenset({*options.env, *options.export}),
    )


def find_store(own: str, welcome: Welcome | None, *, configured: bool) -> Path:
    """The store's root as this kernel sees it; raises :class:`StoreError` where it is not to be seen.

    ``own``: the path that is set here. ``welcome``: of the gateway, once it has said what store it means; nothing is
    written from here to another one in its place.

    It is never made here: a folder that only this kernel sees would be no store.
    """
    from ..store.layout import USERS_FOLDER, own_store

    named_by_gateway = welcome.store if welcome is not None else ""
    store = own_store(Path(own or named_by_gateway).expanduser())
    if os.path.isdir(store):  # False too where a folder above it may not be entered
        if own and not configured:  # both are paths of this machine
            _refuse_other(store, Path(named_by_gateway))
        if store.parent.name == USERS_FOLDER and not os.access(store, os.W_OK | os.X_OK):
            raise StoreError(
                f"the gateway takes you for Unix user {store.name}, and this kernel is user {os.geteuid()}: "
                f"it may not write to {store}",
                hint="ask the operator to name your account in JUPYTER_GPU_UNIX_USERS",
            )
        from ..store.identity import expect_store

        expect_store(store, welcome.store_id if welcome is not None else "")
        ownership.trust(welcome.service_uid if welcome is not None else None)
        return store
    if own and own != named_by_gateway:
        raise StoreError(
            f"large values go through the store, and JUPYTER_GPU_STORE names {store}, which is no folder here",
            hint=f"set JUPYTER_GPU_STORE to where this kernel sees {named_by_gateway}, the store of the cluster",
        )
    raise StoreError(
        f"large values go through the store, and the store {store} cannot be seen from this kernel",
        hint="mount the shared filesystem here and name its path in JUPYTER_GPU_STORE",
    )


def _refuse_other(store: Path, of_cluster: Path) -> None:
    if os.path.isdir(of_cluster) and not os.path.samefile(store, of_cluster):
        raise StoreError(
            f"JUPYTER_GPU_STORE names {store}, but the store of this cluster is {of_cluster}",
            hint=f"unset JUPYTER_GPU_STORE, or set it to {of_cluster}",
        )


def make_submission(
    cell: Cell,
    prepared: CapturedInputs,
    session: str,
    find: Callable[[], Path],
    sources: Sequence[CellSource] = (),
    pace: Pace = UNLIMITED,
) -> Submission:
    """Write large inputs to the store that ``find`` finds, at this ``pace``, and build the request.

    Nothing is left on the store when that fails.
    """
    run = new_run_id()
    inputs, paths = _place_inputs(prepared, find, run, pace)
    return Submission(_request(cell, prepared, session, run, inputs, sources), prepared, paths)


def _place_inputs(
    prepared: CapturedInputs, find: Callable[[], Path], run: str, pace: Pace = UNLIMITED
) -> tuple[Graph, RunPaths | None]:
    if prepared.total_bytes <= INLINE_LIMIT_BYTES:
        return Graph(stream=prepared.stream, buffers=[bytes(buffer) for buffer in prepared.buffers]), None
    from ..store.graph_file import blobs_of_buffers, write_graph
    from ..store.run_folders import create_run_folder, require_store

    store = find()
    require_store(store)
    if not os.access(store, os.W_OK | os.X_OK):
        raise StoreError(
            f"the cell's inputs are too large for a message, and the store {store} cannot be written from this kernel",
            hint="mount it writable, or name the path where it is writable in JUPYTER_GPU_STORE",
        )
    paths = create_run_folder(store, run)
    try:
        # the run's last manifest lies beside it and makes its name durable, too; a queued run without inputs says so
        digest = write_graph(paths.inputs, prepared.stream, prepared.buffers, name_durable=False, pace=pace)
        prepared.used = with_large_digests(prepared.used, prepared, blobs_of_buffers(paths.inputs))
    except BaseException:
        shutil.rmtree(paths.folder, ignore_errors=True)
        raise
    return Graph(file=INPUTS_FILE, digest=digest), paths


def _request(
    cell: Cell, prepared: CapturedInputs, session: str, run: str, inputs: Graph, sources: Sequence[CellSource]
) -> RunRequest:
    options, place = cell.options, cell.place
    return RunRequest(
        run=run,
        session=session,
        ask=options.ask,
        payload=encode(_payload(cell, prepared, inputs, sources)),
        code=cell.text or cell.body,
        imports=prepared.imports,
        name=options.name or cell.function,
        call=cell.call,
        notebook=place.notebook,
        cell=place.cell,
        kernel=place.kernel,
        number=place.count,
        program=place.program,
        queue=options.queue,
        priority=options.priority,
        timeout_s=options.timeout_s,
        wait_s=options.wait_s,
        on_disconnect=options.on_disconnect,
        rank_timeout_s=options.rank_timeout_s,
        is_gang=options.is_gang,
        detach=options.detach,
        keep_s=options.keep_s,
        keep_auto=options.keep_auto,
        fresh=options.fresh,
        pin=options.pin,
        used=prepared.used,
        packages=prepared.packages,
        prepare=prepared.prepare,
        environment=prepared.environment,
        retries=options.retries,
        # a function has no safe points but those of its code, which has to say that it has some
        restartable=bool(options.restartable) if cell.function else options.restartable,
        versions=_versions(prepared),
    )


def _versions(prepared: CapturedInputs) -> dict[str, str]:
    found = {"python": platform.python_version(), "jupyter_gpu_release": __version__}
    return found if prepared.environment is None else {**found, "environment": prepared.environment.digest}


def _payload(cell: Cell, prepared: CapturedInputs, inputs: Graph, sources: Sequence[CellSource]) -> CellPayload:
    options, place = cell.options, cell.place
    workdir = find_workdir(options.workdir)
    return CellPayload(
        source=cell.body,
        count=place.count,
        line_offset=place.line_offset,
        filename=cell.source.filename,
        sources=list(sources),
        inputs=inputs,
        setup=prepared.setup,
        setup_inputs=prepared.setup_inputs,
        out=prepared.out,
        skip=prepared.skip,
        gather=list(options.gather),
        reevaluate=prepared.reevaluate,
        unsent=sorted(prepared.unsent.keys() - prepared.held.keys()),
        held=prepared.held_bytes,
        workdir=workdir.path,
        workdir_stamp=workdir.stamp,
        workdir_asked=workdir.asked,
        workdir_deleted=workdir.deleted,
        sys_path=prepared.sys_path,
        sys_path_behind=prepared.sys_path_behind,
        modules=prepared.modules,
        env={**prepared.env, **exported_variables(options.export), **options.env},
        unset=[name for name in prepared.unset if name not in options.env],
        terminal=cell.in_terminal,
        front_end=find_front_end(place.request),
        ambient=prepared.ambient,
        function=cell.function,
        installs=any(may_install(text) for text in (cell.body, *(each.source for each in prepared.setup))),
        plain_loops=prepared.plain_loops,
        told=ownership.results_for_cell(),
    )


def exported_variables(keys: tuple[str, ...]) -> dict[str, str]:
    """The kernel's own values of ``--export`` variables; raises :class:`OptionError` for one that is not set.

    The token for the gateway stays here: with it the cell, its libraries and whoever reads the run's files could act
    in the user's name.
    """
    for key in keys:
        if key == "JUPYTER_GPU_TOKEN":
            raise OptionError(f"--export {key}: a cell does not get your token for the gateway", hint="leave it out")
        if key not in os.environ:
            raise OptionError(
                f"--export {key}: this kernel has no such environment variable", hint=f"set it, or write --env {key}=…"
            )
    return {key: os.environ[key] for key in keys}
