"""``--cache``: a run with the same key has its results bound again, its output shown again, and no GPU taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ..core.cache import CacheCandidate, CacheQuestion, CacheUse
from ..core.messages import RunView, ValueInfo
from ..errors import GpuReleaseError
from ..storage.tracking import FileDigests
from .cache_key import CacheKey, NoKeyError, cache_key
from .cell_output import CellOutput
from .receipt import Receipt, list_names
from .recorded import show_recorded
from .relay import Relay
from .results import open_values
from .status_line import StatusLine

if TYPE_CHECKING:
    from ..client.session import GatewaySession
    from ..sending.collecting import Prepared
    from ..sending.submission import Cell, Submission
    from .notebook import Notebook

#: of this kernel: files that did not change are not read again
_FILES = FileDigests()


def key_of(notebook: Notebook, cell: Cell, prepared: Prepared) -> CacheKey | None:
    """The cell's key, where it asks for one and has one; a note says why not."""
    if not cell.options.cache:
        return None
    try:
        return cache_key(notebook, cell, prepared)
    except NoKeyError as reason:
        prepared.notes.append(f"--cache: this run cannot be reused: {reason}")
        return None


def with_key(submission: Submission, key: CacheKey | None) -> Submission:
    """The submission under its key, so that its results can be found again."""
    if key is not None:
        digests = key.graph.names
        used = [msgspec.structs.replace(each, digest=f"graph:{digests[each.name]}") for each in key.prepared.used]
        submission.request = msgspec.structs.replace(
            submission.request, cache_key=key.key, cache_marks=key.marks(), packages=key.packages, used=used
        )
    return submission


def reuse(notebook: Notebook, session: GatewaySession, cell: Cell, key: CacheKey) -> bool:
    """Bind the results of an earlier run with this key; False (with notes why): there is none, the cell must run."""
    from ..client.rest import GatewayClient

    notes = key.prepared.notes
    with GatewayClient.of(session.target) as gateway:
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
            changed = next(filter(None, map(_FILES.changed, candidate.tracked)), "")
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
    notebook: Notebook, session: GatewaySession, key: CacheKey, candidate: CacheCandidate, view: RunView
) -> Sequence[ValueInfo]:
    outcome = view.outcome
    if outcome is None or outcome.values is None:
        return ()
    stream, buffers = open_values(session, view.run, outcome.values)
    prepared, aliases = key.as_if_sent_by(candidate.marks)
    return notebook.names.apply(stream, buffers, outcome, prepared, run=view.run, aliases=aliases)


def _show(notebook: Notebook, session: GatewaySession, view: RunView, bound: Sequence[ValueInfo]) -> None:
    notes = list(view.outcome.notes) if view.outcome is not None else []
    notes += notebook.names.notes
    try:
        show_recorded(session, view.run, Relay(CellOutput(notebook.shell)))
    except GpuReleaseError as error:
        notes.append(f"its output could not be shown again: {error.message}")
    head = f"same code, same inputs: results of run {view.run} reused, no GPU taken"
    names = [f"back: {list_names(bound)}"] if bound else []
    facts = {"run": view.run, "status": "ok", "reused": True, "gpus": 0, "held_s": 0.0}
    facts |= {"results": [{"name": each.name, "type": each.type, "bytes": each.bytes} for each in bound]}
    receipt = Receipt("✓", (head, *names), notes=tuple(dict.fromkeys(notes)), facts=facts)
    StatusLine(CellOutput(notebook.shell)).finish(receipt.bundle(), receipt.metadata())
