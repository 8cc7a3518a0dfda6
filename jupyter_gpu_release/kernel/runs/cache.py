"""``--cache``: key, lookup, reuse."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from ...analysis.cache_key import KEY_VERSION, normalised_code, options_that_count, why_not
from ...analysis.cell_facts import parse_cell, transform_of_bodies
from ...analysis.dataflow import analyse
from ...cell_api.tracked_files import FileDigests
from ...errors import GpuReleaseError
from ...presentation.receipt import Receipt, list_names
from ...presentation.run_output import RunOutput
from ...presentation.status_line import StatusLine
from ...protocol.lineage import CacheCandidate, CacheQuestion, CacheUse, ObjectNumbering
from ...protocol.runs import RunView, ValueInfo
from ...protocol.wire import decode, encode
from ...serialization.hashing.atoms import digest_of_bytes
from ...serialization.hashing.canonical import UnkeyableError
from ...serialization.hashing.value_hash import GraphKey
from ...submission.capture import CapturedInputs
from ...submission.location import find_workdir
from ...submission.request import Cell, exported_variables
from ..namespace.values import open_values
from ..output.cell_output import CellOutput
from ..output.replay import show_recorded

if TYPE_CHECKING:
    from ...client.session import GatewaySession
    from ...submission.request import Submission
    from ..context import KernelContext

#: with more objects than this a rank tells none of them apart (node/values/changes.py)
_MOST_OBJECTS = 20_000


class NoKeyError(Exception):
    """The cell cannot be keyed; the message says why."""


@dataclass(frozen=True)
class CacheKey:
    """``packages``: top-level ones whose versions on the nodes belong to the key; ``graph``: of the inputs."""

    key: str
    packages: list[str]
    graph: GraphKey
    prepared: CapturedInputs

    def marks(self) -> bytes:
        """Table of the objects that are sent and their numbers in the key."""
        memo, numbers = self.prepared.memo, self.graph.numbers
        objects: list[int] = []
        if len(memo) <= _MOST_OBJECTS:
            for ident, (sent, _) in memo.items():
                if ident in numbers:
                    objects += (sent, numbers[ident])
        return encode(ObjectNumbering(objects, self.graph.idents))

    def as_if_sent_by(self, marks: bytes) -> tuple[CapturedInputs, dict[str, str]]:
        """This kernel's objects under the numbers, and ids → its own ids, of the kernel that made ``marks``.

        Equal keys mean equal graphs: number n there is number n here.
        """
        theirs = decode(marks, ObjectNumbering) if marks else ObjectNumbering()
        sent_there = dict(zip(theirs.objects[1::2], theirs.objects[::2], strict=True))
        memo: dict[int, tuple[int, Any]] = {}
        for ident, (_, thing) in self.prepared.memo.items():
            number = sent_there.get(self.graph.numbers.get(ident, -1))
            if number is not None:
                memo[ident] = (number, thing)
        ours = self.graph.idents
        aliases = {ident: ours[number] for number, ident in theirs.idents.items() if number in ours}
        return replace(self.prepared, memo=memo), aliases


def cache_key(notebook: KernelContext, cell: Cell, prepared: CapturedInputs) -> CacheKey:
    """The key; raises :class:`NoKeyError` for a cell or an input that has none."""
    transform = transform_of_bodies(notebook.shell)
    tree = parse_cell(cell.body, transform, line_offset=cell.place.line_offset)
    reason = why_not(tree, analyse(tree, transform))
    if not reason and prepared.held:
        reason = "which names it asks for is not known before it runs"
    if not reason and prepared.unshipped:
        reason = "its local modules are too large to be looked at"
    if reason:
        raise NoKeyError(reason)
    try:
        graph = notebook.names.graph_key(prepared.originals)
        read_by_setup = notebook.names.graph_key(prepared.setup_originals)
        settings = notebook.names.settings_key()
    except UnkeyableError as error:
        raise NoKeyError(f"an input has no stable digest: {error}") from error
    parts = [
        KEY_VERSION,
        platform.python_version(),
        normalised_code(tree),
        graph.digest,
        [[cell.source for cell in prepared.setup], read_by_setup.digest] if prepared.setup else [],
        settings,
        sorted((path, digest_of_bytes(source)) for path, source in prepared.modules.items()),
        [prepared.sys_path, prepared.sys_path_behind],
        sorted(prepared.reevaluate.items()),
        find_workdir(cell.options.workdir).path,
        cell.in_terminal,
        options_that_count(cell.options, exported_variables(cell.options.export)),
        *([] if prepared.environment is None else [["environment", prepared.environment.digest]]),
    ]
    key = str(blake3(msgspec.msgpack.encode(parts)).hexdigest())
    return CacheKey(key, _packages(prepared, graph), graph, prepared)


def _packages(prepared: CapturedInputs, graph: GraphKey) -> list[str]:
    local = {path.partition("/")[0].removesuffix(".py") for path in prepared.modules}
    tops = {module.partition(".")[0] for module in graph.modules} - local - {"__main__", "jupyter_gpu_release"}
    return sorted(tops | set(prepared.packages))


#: of this kernel: files that did not change are not read again
_FILES = FileDigests()


def key_of(notebook: KernelContext, cell: Cell, prepared: CapturedInputs) -> CacheKey | None:
    """The key of a cell that asks for one (``--cache``); a note says why it has none."""
    try:
        return cache_key(notebook, cell, prepared)
    except NoKeyError as reason:
        prepared.notes.append(f"--cache: this run cannot be reused: {reason}")
        return None


def with_key(submission: Submission, key: CacheKey) -> Submission:
    """The submission under its key, so that its results can be found again."""
    digests = key.graph.names
    used = [msgspec.structs.replace(each, digest=f"graph:{digests[each.name]}") for each in key.prepared.used]
    submission.request = msgspec.structs.replace(
        submission.request, cache_key=key.key, cache_marks=key.marks(), packages=key.packages, used=used
    )
    return submission


def reuse(notebook: KernelContext, session: GatewaySession, cell: Cell, key: CacheKey) -> bool:
    """Bind the results of an earlier run with this key; False (with notes why): there is none, the cell must run."""
    from ...client.rest import GatewayClient

    notes = key.prepared.notes
    with GatewayClient.for_target(session.target) as gateway:
        try:
            answer = gateway.cached(CacheQuestion(key.key, key.packages))
        except GpuReleaseError as error:
            notes.append(f"--cache: the gateway cannot be asked: {error.message}")
            return False
        if answer.reason:
            notes.append(f"--cache: this run cannot be reused: {answer.reason}")
        if answer.under_way:
            text = f"run {answer.under_way} makes the same and is not over: %gpu_attach {answer.under_way} brings"
            notes.append(f"--cache: {text} its results without another run")
        for candidate in answer.candidates:
            changed = next(filter(None, map(_FILES.explain_change, candidate.tracked)), "")
            if changed:
                notes.append(f"--cache: results of run {candidate.run} are not reused: {changed}")
                continue
            try:
                view = gateway.view(candidate.run, session=session.session_id)
                bound = _bind(notebook, session, key, candidate, view)
            except GpuReleaseError as error:
                notes.append(f"--cache: results of run {candidate.run} are not reused: {error.message}")
                continue
            _show(notebook, session, view, bound)
            gateway.reused(candidate.run, CacheUse(cell.place.notebook, cell.place.cell))
            return True
    return False


def _bind(
    notebook: KernelContext, session: GatewaySession, key: CacheKey, candidate: CacheCandidate, view: RunView
) -> Sequence[ValueInfo]:
    outcome = view.outcome
    if outcome is None or outcome.values is None:
        return ()
    stream, buffers = open_values(session, view.run, outcome.values)
    prepared, aliases = key.as_if_sent_by(candidate.marks)
    return notebook.names.apply(stream, buffers, outcome, prepared, run=view.run, aliases=aliases)


def _show(notebook: KernelContext, session: GatewaySession, view: RunView, bound: Sequence[ValueInfo]) -> None:
    notes = list(view.outcome.notes) if view.outcome is not None else []
    notes += notebook.names.notes
    try:
        show_recorded(session, view.run, RunOutput(CellOutput(notebook.shell)))
    except GpuReleaseError as error:
        notes.append(f"its output could not be shown again: {error.message}")
    head = f"same code, same inputs: results of run {view.run} reused, no GPU taken"
    names = [f"back: {list_names(bound)}"] if bound else []
    facts = {"run": view.run, "status": "ok", "reused": True, "gpus": 0, "held_s": 0.0}
    facts |= {"results": [{"name": each.name, "type": each.type, "bytes": each.bytes} for each in bound]}
    receipt = Receipt("✓", (head, *names), notes=tuple(dict.fromkeys(notes)), facts=facts)
    StatusLine(CellOutput(notebook.shell)).finish(receipt.bundle(), receipt.metadata())
