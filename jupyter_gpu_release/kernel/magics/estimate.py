"""``--estimate``: what would be sent and how soon it would start; runs nothing and starts no cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING

from IPython.display import display

from ...errors import ConflictError, GpuReleaseError, ImpossibleAskError, OptionError
from ...presentation.wording import describe_estimate, priced_words
from ...protocol.cell import INLINE_LIMIT_BYTES
from ...protocol.rest import EstimateDocument, StatusDocument
from ...protocol.runs import ResourceAsk
from ...submission.capture import CapturedInputs
from ...submission.request import question_of
from ...units import format_bytes
from ..runs.foreground import find_packages, prepare
from .tables import Table

if TYPE_CHECKING:
    from ...client.discovery import Target
    from ...client.rest import GatewayClient
    from ...submission.request import Cell
    from ..notebook import Notebook

_LOOK_S = 10.0
#: prints those of its arguments that cannot be imported
_LOOK = (
    "import importlib.util as u, sys\nfor n in sys.argv[1:]:\n    try: f = u.find_spec(n)\n"
    "    except (ImportError, ValueError): f = None\n    if f is None: print(n)"
)


def estimate(notebook: Notebook, cell: Cell) -> CapturedInputs:
    """Show the plan of ``cell``: names and sizes, free GPUs, place in the queue."""
    prepared = prepare(notebook, cell)
    display(sent_table(prepared))
    display(_estimate_of(notebook, cell, prepared.imports))
    return prepared


def sent_table(prepared: CapturedInputs) -> Table:
    """The names that would be sent, the largest first."""
    rows = [
        (value.name, value.type, format_bytes(value.bytes))
        for value in sorted(prepared.sent, key=lambda value: -value.bytes)
    ]
    way = "inside the message" if prepared.total_bytes <= INLINE_LIMIT_BYTES else "through the store"
    title = f"To be sent: {format_bytes(prepared.total_bytes)} {way}" if rows else "No names would be sent"
    again = [(name, "made again there", expression) for name, expression in prepared.reevaluate.items()]
    held = [(name, "held back", "looks like a secret") for name in prepared.held_back]
    return Table(title, ("name", "type", "size"), [*rows, *again, *held])


def _estimate_of(notebook: Notebook, cell: Cell, imports: Sequence[str]) -> Table:
    from ...client.rest import GatewayClient

    try:
        target = notebook.connection.target(notebook.settings)
        with GatewayClient.for_target(target) as gateway:
            document, answer = gateway.status(), _answer(gateway, cell)
        imports = _without_provided(notebook, cell, imports)
    except GpuReleaseError as error:
        return Table(f"When it would start is not known: {error.message}")
    missing = missing_packages(target, imports)
    return Table(start_words(document, cell.options.ask, answer, missing, imports, notebook.connection.session_id))


def _without_provided(notebook: Notebook, cell: Cell, imports: Sequence[str]) -> Sequence[str]:
    """The imports but for those that come with the notebook's packages."""
    try:
        found = find_packages(notebook, cell.options) if imports else None
    except ConflictError:  # the cluster builds no environments
        return imports
    return imports if found is None else found.left_of(imports)


def _answer(gateway: GatewayClient, cell: Cell) -> EstimateDocument | GpuReleaseError:
    """When it would start, or why it would be refused."""
    try:
        return gateway.ask_estimate(question_of(cell.options, cell.place))
    except (OptionError, ImpossibleAskError) as error:
        return error


def missing_packages(target: Target, imports: Sequence[str]) -> list[str] | None:
    """The ``imports`` that nodes lack; None: not known, only this machine's own cluster can be asked without a run."""
    connection = target.connection
    if not imports:
        return []
    if connection is None or not connection.embedded or not connection.daemon_pid:
        return None
    import psutil

    try:
        # its nodes run the daemon's interpreter in the daemon's environment
        daemon = psutil.Process(connection.daemon_pid)
        command = [daemon.cmdline()[0], "-c", _LOOK, *imports]
        done = subprocess.run(command, cwd="/", env=daemon.environ(), capture_output=True, timeout=_LOOK_S, check=True)
    except (IndexError, OSError, psutil.Error, subprocess.SubprocessError):
        return None
    return done.stdout.decode().split()


def start_words(
    document: StatusDocument,
    ask: ResourceAsk,
    answer: EstimateDocument | GpuReleaseError,
    missing: Sequence[str] | None = (),
    imports: Sequence[str] = (),
    session: str = "",
) -> str:
    """Say when a run with this ask would start; ``missing``: packages, None: not known."""
    if missing:
        return (
            f"it would be refused: the cell imports {', '.join(missing)}, which the cluster's nodes do not have"
            f" (pip install {' '.join(missing)} there)"
        )
    unknown = f" (if the nodes have {', '.join(imports)}, which only a run finds out)" if missing is None else ""
    return _when(document, ask, answer, session) + unknown


def _when(document: StatusDocument, ask: ResourceAsk, answer: EstimateDocument | GpuReleaseError, session: str) -> str:
    kind = "simulated GPUs" if document.simulated else "GPUs"
    wanted = f"{ask.gpus} of {document.gpus.total} {kind} wanted, {document.gpus.free} free"
    if isinstance(answer, GpuReleaseError):
        return f"{wanted}: it would be refused: {answer.message} ({answer.hint})"
    if any(row.gpus == ask.gpus for row in document.warm_of(session)):
        kept = "it would start at once where the cell before it ran, whose GPUs this kernel keeps"
        return f"{wanted}: {kept}{priced_words(answer)}"
    return f"{wanted}: {describe_estimate(answer, document.user)}"
