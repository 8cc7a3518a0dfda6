"""``status``, ``queues``, ``report``, ``runs``, ``cancel``, ``preempt``, ``attach``."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from ..client.config import configured_target
from ..client.discovery import Target
from ..client.feed import ConnectionLost, RunFeed
from ..client.rest import GatewayClient
from ..client.session import GatewaySession
from ..errors import GatewayUnavailableError, NoSuchRunError, OptionError, from_code
from ..presentation.plain_text import is_stderr, text_of, without_colours
from ..presentation.terminal import OutputCollapser
from ..presentation.wording import cancel_words, describe_lost, place_words, run_word, state_words
from ..protocol.events import Event
from ..protocol.rest import DOCUMENT_VERSION, GatewayFacts, GpuCounts, StatusDocument
from ..protocol.runs import RunView
from ..protocol.session import Accepted, Events, Refused, Update
from ..protocol.states import RunState, is_run_id
from ..units import format_seconds
from .connect import open_gateway as _gateway
from .connect import reachable_gateway, store_without_cluster
from .lineage import lineage_document, print_lineage
from .past_runs import PastRuns
from .tables import output_console, print_queues, print_report, print_run, print_runs, print_status

#: in place of an id, as in the magics
_LAST = "last"
#: newest runs that `status` shows where no cluster runs
_SHOWN = 5


def status(arguments: argparse.Namespace) -> int:
    """``jupyter gpu status``; exit status 1 when no gateway answers (the JSON document says ``up: false``)."""
    try:
        with _gateway() as gateway:
            document = gateway.status()
    except GatewayUnavailableError:
        if not arguments.json:
            past = _past_runs()
            if past is not None and (newest := past.list_newest(_SHOWN).runs):
                print_runs(output_console(), newest)
            raise
        target = configured_target()
        print_json(_down_document(target.url if target else ""))
        return 1
    if arguments.json:
        print_json(document)
    else:
        print_status(output_console(), document)
    return 0


def queues(arguments: argparse.Namespace) -> int:
    """``jupyter gpu queues``."""
    with _gateway() as gateway:
        document = gateway.queues()
    if arguments.json:
        print_json(document)
    else:
        print_queues(output_console(), document)
    return 0


def report(arguments: argparse.Namespace) -> int:
    """``jupyter gpu report``."""
    with _gateway() as gateway:
        document = gateway.report(arguments.last)
    if arguments.json:
        print_json(document)
    else:
        print_report(output_console(), document)
    return 0


def runs(arguments: argparse.Namespace) -> int:
    """``jupyter gpu runs``, and ``runs show|pin|unpin|export|import``."""
    if arguments.action:
        if not arguments.run:
            raise OptionError(f"runs {arguments.action}: which run?", hint=f"jupyter gpu runs {arguments.action} RUN")
        if arguments.action == "show":
            return _show(arguments.run, as_json=arguments.json)
        if arguments.action in ("export", "import"):
            from . import bundles

            return (bundles.export_run if arguments.action == "export" else bundles.import_run)(arguments)
        return _pin(arguments.run, pinned=arguments.action == "pin")
    try:
        with _gateway() as gateway:
            document = gateway.runs(arguments.limit, mine=arguments.mine, brief=not arguments.json)
    except GatewayUnavailableError:
        if (past := _past_runs()) is None:
            raise
        document = past.list_newest(arguments.limit)
    if arguments.json:
        print_json(document)
    else:
        print_runs(output_console(), document.runs, document.stored_bytes)
    return 0


def _past_runs() -> PastRuns | None:
    """The runs on the store, where it is this machine's own cluster that does not run."""
    store = store_without_cluster()
    return None if store is None else PastRuns(store)


def cancel(arguments: argparse.Namespace) -> int:
    """``jupyter gpu cancel RUN``."""
    _check_named(arguments.run)
    with _gateway() as gateway:
        try:
            before = gateway.newest(live=True) if arguments.run == _LAST else gateway.run(arguments.run)
        except NoSuchRunError:
            if arguments.run == _LAST:
                raise
            gateway.cancel(arguments.run)  # a sweep, or it says the same
            sys.stdout.write(f"{arguments.run} is being ended: its trials are interrupted, and it gets no others.\n")
            return 0
        after = before if RunState.of(before.state).is_terminal else gateway.cancel(before.run)
    sys.stdout.write(f"{cancel_words(before, after)}\n")
    return 0


def preempt(arguments: argparse.Namespace) -> int:
    """``jupyter gpu preempt RUN``."""
    _check_named(arguments.run)
    with _gateway() as gateway:
        run = gateway.newest(live=True).run if arguments.run == _LAST else arguments.run
        after = gateway.preempt(run)
    sys.stdout.write(f"{after.run} is being preempted: it is saved at its next safe point, and resumed later.\n")
    return 0


def print_json(document: msgspec.Struct | dict[str, Any]) -> None:
    """One document on standard output."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")


def _show(run: str, *, as_json: bool) -> int:
    _check_named(run)
    try:
        with _gateway() as gateway:
            row = gateway.newest() if run == _LAST else gateway.run(run)
            lineage = gateway.lineage(row.run)
    except GatewayUnavailableError:
        if (past := _past_runs()) is None:
            raise
        row, lineage = past.show(run)
    if as_json:
        print_json(lineage_document(row, lineage))
    else:
        console = output_console()
        print_run(console, row)
        print_lineage(console, row, lineage)
    return 0


def _pin(run: str, *, pinned: bool) -> int:
    _check_named(run)
    with _gateway() as gateway:
        row = gateway.pin(gateway.newest().run if run == _LAST else run, pinned=pinned)
    what = "is pinned: its results are never collected" if row.pinned else "is not pinned: its results may be collected"
    sys.stdout.write(f"{row.run} {what}.\n")
    return 0


def _check_named(run: str) -> None:
    if run != _LAST and not is_run_id(run):
        raise NoSuchRunError(
            f"{run} is not the id of a run", hint=f"`jupyter gpu runs` lists them; `{_LAST}` is the newest"
        )


def resolve(gateway: GatewayClient, run: str) -> str:
    """The id that was named; ``last`` is the newest run."""
    _check_named(run)
    return (gateway.newest() if run == _LAST else gateway.run(run)).run


def _down_document(url: str) -> dict[str, Any]:
    """The status while nobody answers: the GPUs are not known, which is not the same as none."""
    facts = GatewayFacts(url=url, version="", up=False)
    counts = GpuCounts(total=0, held=0, free=0, external=0)
    known = StatusDocument(DOCUMENT_VERSION, simulated=False, gateway=facts, gpus=counts, nodes=[], queue=[], runs=[])
    unknown = {"simulated": None, "gpus": None, "nodes": None, "queue": None, "runs": None}
    document: dict[str, Any] = msgspec.to_builtins(known)
    return document | unknown


_TICK_S = 0.5
_EXIT_INTERRUPTED = 130


def attach(arguments: argparse.Namespace) -> int:
    """Exit status: 0 for a run that succeeded, 1 for any other end, 130 when it was left (it goes on)."""
    _check_named(arguments.run)
    try:
        target = reachable_gateway()
    except GatewayUnavailableError:
        if (past := _past_runs()) is None:
            raise
        return _replay(*past.output(arguments.run))
    with GatewayClient.for_target(target) as gateway:
        run = resolve(gateway, arguments.run)
    session = GatewaySession(target, f"terminal-{secrets.token_hex(6)}")
    try:
        session.connect(10.0)
        return _follow(session.follow(run), target)
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{run} goes on; `jupyter gpu attach {run}` shows it again\n")
        return _EXIT_INTERRUPTED
    finally:
        session.close()


def _replay(view: RunView, events: list[Event]) -> int:
    folding = OutputCollapser()
    _print(folding.feed(events))
    _print(folding.rest())
    return _end(view)


def _follow(feed: RunFeed, target: Target) -> int:
    """Show a run until it ends."""
    folding: OutputCollapser | None = OutputCollapser()
    said = ""
    granted_at: float | None = None
    while True:
        item = feed.next_item(_TICK_S)
        if isinstance(item, Events):
            _print(item.events if folding is None else folding.feed(item.events))
        elif isinstance(item, Refused):
            raise from_code(item.code, item.message, item.hint)
        elif isinstance(item, ConnectionLost):
            if item.final:
                raise item.error
            sys.stderr.write(f"connection to {target.url} lost, {describe_lost(granted_at)}; reconnecting …\n")
        elif isinstance(item, Accepted | Update):
            if folding is not None:  # what was recorded comes before the first view
                _print(folding.rest())
                folding = None
            view = item.view
            if RunState.of(view.state).is_terminal:
                return _end(view)
            said, granted_at = _say_waiting(view, said), view.granted_at


def _print(events: Iterable[Event]) -> None:
    for event in events:
        stream = sys.stderr if is_stderr(event) else sys.stdout
        text = text_of(event)
        stream.write(text if stream.isatty() else without_colours(text))
        stream.flush()


def _say_waiting(view: RunView, said: str) -> str:
    """A line for each change, while there is nothing else to see."""
    if view.granted_at is not None:
        return said
    place = f", {place_words(view.position)}" if view.position else ""
    text = f"{view.run}: {run_word(view.state)}{place}{f' ({view.reason})' if view.reason else ''}\n"
    if text != said:
        sys.stderr.write(text)
    return text


def _end(view: RunView) -> int:
    held = ""
    if view.granted_at is not None and view.gone_at is not None:
        held = f", held {format_seconds(max(0.0, view.gone_at - view.granted_at))}"
    sys.stderr.write(f"[{view.run} {state_words(view)}{held}]\n")
    return 0 if RunState.of(view.state) is RunState.SUCCEEDED else 1
