"""What the magics do: one function each."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from IPython.display import display
from IPython.utils.text import DollarFormatter

from ..core.documents import RunRow
from ..core.messages import Accepted, Events, Refused, RunView, Update
from ..core.options import OPTIONS, Written, refuse_rest, split_line
from ..core.run import RunState, is_run_id
from ..errors import GatewayUnavailableError, OptionError, from_code
from .place import locate
from .relay import Relay
from .submission import Cell
from .tables import Table, runs_table, status_tables
from .training import train

if TYPE_CHECKING:
    from ..client.rest import GatewayClient
    from ..client.session import RunFeed
    from .notebook import Notebook

_MOST_RUNS = 1000
_SILENT_S = 10.0

#: options whose values may hold braces and dollars of their own
_FREE_TEXT = frozenset({"env", "label", "name", "workdir"})
_DASHED = re.compile(r"-[A-Za-z][\w-]+")


def run_cell(notebook: Notebook, line: str, body: str | None) -> None:
    """``%%gpu_train`` with ``body``, or ``%gpu_train`` with the statement on its ``line``."""
    parts = split_line(line)
    is_cell = body is not None
    if parts.rest and (is_cell or _DASHED.match(parts.rest)):
        raise refuse_rest(parts.rest)
    if not is_cell and not parts.rest:
        raise OptionError(
            "there is nothing to run", mend="write %gpu_train model.fit(X, y), or %%gpu_train above a cell"
        )
    code = parts.rest if body is None else body
    options = notebook.options(expanded(parts.written, notebook.shell.user_ns))
    in_terminal = getattr(notebook.shell, "kernel", None) is None
    cell = Cell(code, options, locate(notebook.shell, code, is_cell=is_cell), in_terminal)
    if options.estimate:
        from .estimate import estimate

        estimate(notebook, cell)
    else:
        train(notebook, cell)


def expanded(written: Written, names: Mapping[str, Any]) -> Written:
    """Put notebook variables into option values, as IPython does: ``--gpus {n}`` or ``--gpus $n``."""
    return {name: [_expand(name, value, names) for value in values] for name, values in written.items()}


def _expand(option: str, value: str, names: Mapping[str, Any]) -> str:
    if "{" not in value and "$" not in value:
        return value
    try:
        return str(DollarFormatter().vformat(value, args=[], kwargs=names))
    except NameError as error:
        if option in _FREE_TEXT:
            return value
        raise OptionError(
            f"--{option} {value}: there is no variable {error.name}",
            mend="define it in a cell before, or write the value",
        ) from None
    except Exception:  # noqa: BLE001 - any expression may stand there; what does not work stays as written
        return value


def configure(notebook: Notebook, line: str) -> None:
    """``%gpu_config``: set, take back or show this notebook's defaults."""
    if line.strip() == "reset":
        notebook.defaults.reset()
    elif line.strip():
        notebook.defaults.change(line, notebook.file_defaults)
    display(_settings_table(notebook))


def _settings_table(notebook: Notebook) -> Table:
    own, files = notebook.defaults.own, notebook.file_defaults
    rows = []
    for name in OPTIONS:
        values = own.get(name) or files.get(name)
        if values:
            source = "%gpu_config" if name in own else "configuration file"
            rows.append((name, ", ".join(values) or "yes", source))
    title = "Defaults of %%gpu_train in this notebook" if rows else "No defaults are set: each cell gets 1 GPU"
    return Table(title, ("option", "value", "from"), rows)


def show_status(notebook: Notebook, line: str) -> None:
    """``%gpu_status``."""
    _refuse_words("gpu_status", line)
    with _rest(notebook) as gateway:
        tables = status_tables(gateway.status())
    for table in tables:
        display(table)


def show_runs(notebook: Notebook, line: str) -> None:
    """``%gpu_runs [N]``."""
    word = line.strip() or "20"
    if not word.isdigit() or not 0 < int(word) <= _MOST_RUNS:
        raise OptionError(f"%gpu_runs {word}: not a number of runs", mend=f"write %gpu_runs 20 (at most {_MOST_RUNS})")
    with _rest(notebook) as gateway:
        display(runs_table(gateway.runs(int(word), mine=True), int(word)))


def cancel_run(notebook: Notebook, line: str) -> None:
    """``%gpu_cancel RUN``."""
    run = _run_named(notebook, "gpu_cancel", line, live=True)
    with _rest(notebook) as gateway:
        row = gateway.cancel(run)
    sys.stdout.write(f"run {run}: {row.state}{_how_it_ends(row)}\n")


def _how_it_ends(row: RunRow) -> str:
    if row.state == RunState.PERSISTING.word:
        return ": its results are being given up"
    return (f": {row.reason}" if row.reason else "") if RunState.of(row.state).is_terminal else ", ending"


def replay(notebook: Notebook, line: str) -> None:
    """``%gpu_logs RUN``: what is recorded up to now, shown again."""
    run = _run_named(notebook, "gpu_logs", line)
    session = notebook.link.session(notebook.settings)
    feed = session.follow(run)
    try:
        _show_recorded(notebook, feed)
    finally:
        session.drop(feed)


def _show_recorded(notebook: Notebook, feed: RunFeed) -> None:
    """The gateway sends all events that it knows before the run's view."""
    relay = Relay(notebook.shell)
    silent_since = time.monotonic()
    while time.monotonic() - silent_since < _SILENT_S:
        item = feed.get(0.25)
        if item is None:
            continue
        silent_since = time.monotonic()
        if isinstance(item, Events):
            relay.show(item.events)
        elif isinstance(item, Refused):
            raise from_code(item.code, item.message, item.mend)
        elif isinstance(item, Update | Accepted):
            _show_end(relay, item.view)
            return
    raise GatewayUnavailableError("the gateway does not answer", mend="look at `jupyter gpu status`")


def _show_end(relay: Relay, view: RunView) -> None:
    for error in relay.errors:
        sys.stderr.write("\n".join([*(error.get("traceback") or []), ""]))
    state = view.state if RunState.of(view.state).is_terminal else f"{view.state}: there may be more to come"
    sys.stderr.write(f"[run {view.run}: {state}]\n")


def _rest(notebook: Notebook) -> GatewayClient:
    from ..client.rest import GatewayClient

    return GatewayClient.of(notebook.link.target(notebook.settings))


def _run_named(notebook: Notebook, magic: str, line: str, *, live: bool = False) -> str:
    word = line.strip()
    if word == "last":
        with _rest(notebook) as gateway:
            return gateway.newest(live=live).run
    if not is_run_id(word):
        given = f"{word!r} is not a run" if word else "no run is named"
        raise OptionError(f"%{magic}: {given}", mend=f"write %{magic} RUN, as listed by %gpu_runs")
    return word


def _refuse_words(magic: str, line: str) -> None:
    if line.strip():
        raise OptionError(f"%{magic} {line.strip()}: it takes no words", mend=f"write %{magic}")
