"""``%%gpu_train``, ``%gpu_config``, ``%gpu_status``."""

from __future__ import annotations

import re
import sys

from IPython.display import display

from ...analysis.sources import name_of_plain_cell
from ...errors import OptionError
from ...options.definitions import OPTIONS, refuse_rest, refuse_words, split_line
from ...presentation.wording import describe_sooner
from ...submission.location import locate, transformed_by_user
from ...submission.request import Cell
from ..notebook import Notebook, expand_variables
from ..runs.foreground import train
from .tables import Table, queue_tables, status_tables

#: own runs of which `%gpu_queue` says what would start sooner
_MOST_LOOKED_AT = 3
_DASHED = re.compile(r"-[A-Za-z][\w-]+")


def run_cell(notebook: Notebook, line: str, body: str | None) -> None:
    """``%%gpu_train`` with ``body``, or ``%gpu_train`` with the statement on its ``line``."""
    parts = split_line(line)
    is_cell = body is not None
    if parts.rest and (is_cell or _DASHED.match(parts.rest)):
        raise refuse_rest(parts.rest)
    if body is None and not parts.rest:
        raise OptionError(
            "there is nothing to run", hint="write %gpu_train model.fit(X, y), or %%gpu_train above a cell"
        )
    code = parts.rest if body is None else body
    options = notebook.options(expand_variables(parts.written, notebook.shell.user_ns))
    if not any(line.strip() and not line.strip().startswith("#") for line in code.splitlines()):
        sys.stderr.write("nothing to run in this cell: no GPU was taken\n")
        return
    in_terminal = getattr(notebook.shell, "kernel", None) is None
    place = locate(notebook.shell, code, is_cell=is_cell)
    code = transformed_by_user(notebook.shell, code, place) if is_cell else code
    name = name_of_plain_cell(notebook.shell.compile, code, place.count)
    cell = Cell(code, options, place, in_terminal, name)
    if options.estimate:
        from .estimate import estimate

        estimate(notebook, cell)
    else:
        train(notebook, cell)


def configure(notebook: Notebook, line: str) -> None:
    """``%gpu_config``: set, unset or show this notebook's defaults."""
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


def show_queue(notebook: Notebook, line: str) -> None:
    """``%gpu_queue``."""
    refuse_words("gpu_queue", line)
    with notebook.rest_client() as gateway:
        document = gateway.status()
        own = [row.run for row in document.queue if row.user == document.user][:_MOST_LOOKED_AT]
        found = {run: describe_sooner(gateway.estimate(run).sooner) for run in own}
    for table in queue_tables(document, {run: words for run, words in found.items() if words}):
        display(table)


def show_status(notebook: Notebook, line: str) -> None:
    """``%gpu_status``."""
    refuse_words("gpu_status", line)
    with notebook.rest_client() as gateway:
        tables = status_tables(gateway.status())
    for table in tables:
        display(table)
