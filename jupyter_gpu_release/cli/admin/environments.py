"""``environments``, ``environments show``, ``build`` and ``remove``: asked of the gateway, which asks the nodes."""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...client.rest import GatewayClient
from ...errors import ConflictError, GpuReleaseError, RequestError
from ...protocol.environments import EnvironmentRemoval, EnvironmentRow, EnvironmentsDocument, Plan
from ...submission.packages import named_packages
from ...units import format_bytes, format_count, format_seconds
from ..connect import open_gateway
from ..runs import print_json
from ..tables import output_console, write_columns

_MOST_NAMED = 4
#: between two looks at a build, and for the last answer about it
_LOOK_S, _ANSWER_S = 0.5, 2.0
PROGRESS_THREAD = "jgr-progress"


def environments(arguments: argparse.Namespace) -> int:
    """``jupyter gpu environments …``."""
    console = output_console()
    with open_gateway() as gateway:
        if arguments.action == "build":
            _build(console, gateway, arguments.name)
            return 0
        if arguments.action == "remove":
            _tell_removal(console, gateway.remove_environment(EnvironmentRemoval(arguments.digest)))
            return 0
        document = gateway.environments()
    if arguments.action == "show":
        document = _only(document, arguments.digest)
    if arguments.json:
        print_json(document)
    elif arguments.action == "show":
        _print_one(console, document.environments)
    else:
        _print_all(console, document)
    return 0


def _build(console: Console, gateway: GatewayClient, name: str) -> None:
    found = named_packages(name, "", gateway)
    for left in found.left_out:
        console.print(f"  · {left}", markup=False)
    plan = found.plan
    if plan is None:
        console.print(f"The cluster's own packages are all that {name} asks for: there is nothing to build.")
        return
    names = ", ".join(f"{each.name} {each.version}" for each in plan.packages)
    console.print(f"{name}: {names}", markup=False)
    with _progress(gateway, plan):
        built = gateway.build_environment(plan)
    where = ", ".join(built.hosts) or "all nodes had it"
    console.print(f"{plan.digest[:12]} is built ({where}) · {format_seconds(built.seconds)}", highlight=False)


@contextlib.contextmanager
def _progress(gateway: GatewayClient, plan: Plan) -> Iterator[None]:
    """Show how many packages the slowest node has: a bar on a terminal, else a line a change, on standard error."""
    console, over = Console(stderr=True), threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("packages", total=len(plan.packages))

        def show(fetched: int) -> None:
            bar.update(task, completed=fetched)
            if not console.is_terminal:
                console.print(f"{fetched} of {format_count(len(plan.packages), 'package')}", highlight=False)

        asking = threading.Thread(
            target=_ask_again, args=(gateway, plan, over, show), name=PROGRESS_THREAD, daemon=True
        )
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join(_ANSWER_S)


def _ask_again(gateway: GatewayClient, plan: Plan, over: threading.Event, show: Callable[[int], None]) -> None:
    """Ask until it is ``over``, or the gateway does not answer: who builds hears of that."""
    shown = None
    with contextlib.suppress(GpuReleaseError):
        while not over.wait(_LOOK_S):
            fetched = gateway.build_progress(plan).fetched
            if fetched is not None and fetched != shown and not over.is_set():
                show(fetched)
                shown = fetched


def _only(document: EnvironmentsDocument, beginning: str) -> EnvironmentsDocument:
    rows = [row for row in document.environments if row.digest.startswith(beginning)]
    if len({row.digest for row in rows}) != 1:
        count = format_count(len({row.digest for row in rows}), "environment")
        raise RequestError(
            f"{beginning}: the digests of {count} begin so", hint="`jupyter gpu environments list` shows all"
        )
    return msgspec.structs.replace(document, environments=rows)


def _tell_removal(console: Console, left: EnvironmentsDocument) -> None:
    if left.environments or left.problems:
        hosts = [f"{row.host} uses it" for row in left.environments]
        raise ConflictError(
            f"it is not removed everywhere: {'; '.join([*hosts, *left.problems])}",
            hint="run this again when the cells there have ended",
        )
    console.print("It is removed. Who needs it has it built again.", highlight=False)


def _print_all(console: Console, document: EnvironmentsDocument) -> None:
    by_digest: dict[str, list[EnvironmentRow]] = {}
    for row in document.environments:
        by_digest.setdefault(row.digest, []).append(row)
    rows = [
        (digest[:12], _named(found[0]), ", ".join(row.host for row in found), _used(found))
        for digest, found in by_digest.items()
    ]
    if rows:
        write_columns(console, ("digest", "packages", "nodes", "used"), rows, {})
    else:
        console.print("No node has an environment: notebooks have needed no packages beside the cluster's.")
    for problem in document.problems:
        console.print(f"  · {problem}", markup=False)


def _named(row: EnvironmentRow) -> str:
    more = len(row.packages) - _MOST_NAMED
    names = ", ".join(f"{each.name} {each.version}" for each in row.packages[:_MOST_NAMED])
    return f"{names} and {more} more" if more > 0 else names


def _used(rows: Iterable[EnvironmentRow]) -> str:
    """Time since the last use on any node."""
    ago = format_seconds(max(0.0, time.time() - max(row.used_at for row in rows)))
    return f"{ago} ago"


def _state(row: EnvironmentRow) -> str:
    memory = f" ({format_bytes(row.memory_bytes)} of memory)" if row.memory_bytes else ""
    return f"a fork server runs{memory}" if row.is_warm else ""


def _print_one(console: Console, rows: list[EnvironmentRow]) -> None:
    first = rows[0]
    console.print(f"{first.digest}: Python {first.python}, {format_count(len(first.packages), 'package')}")
    packages = [(each.name, each.version, "the notebook's" if each.is_shipped else "index") for each in first.packages]
    write_columns(console, ("package", "version", "from"), packages, {})
    nodes = [(row.host, _used([row]), _state(row)) for row in rows]
    write_columns(console, ("node", "used", "state"), nodes, {})
