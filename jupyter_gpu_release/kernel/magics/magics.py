"""The magics: each reads its line and hands over; no logic of its own."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from IPython.core.magic import Magics, cell_magic, line_cell_magic, line_magic, magics_class, no_var_expand

from ...errors import GpuReleaseError, OptionError
from ...options.definitions import GROUPS, Option
from ...options.sweep_options import SEARCH
from ...presentation.plain_text import without_backticks
from ..interrupts import hold_interrupts

if TYPE_CHECKING:
    from ...client.discovery import Target
    from ..notebook import Notebook

_Magic = TypeVar("_Magic", bound=Callable[..., Any])


def _in_our_words(magic: _Magic) -> _Magic:
    """Errors of ours show message and mend, no frames; the cell fails all the same."""

    @wraps(magic)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            with hold_interrupts():
                _import_all()
            return magic(*args, **keywords)
        except GpuReleaseError as error:
            shown: BaseException = error
        except KeyboardInterrupt as error:
            shown = error
        from ...client.tracebacks import in_our_words

        raise in_our_words(shown)

    return cast(_Magic, call)


@cache
def _import_all() -> None:
    """Import what the magics need when they are first used."""
    state = random.getstate()  # rich draws as it is imported, and who has seeded gets the same numbers as ever
    try:
        from .. import notebook as kernel_notebook  # noqa: F401
        from . import cell as magics_cell  # noqa: F401
        from . import runs  # noqa: F401
    finally:
        random.setstate(state)


@magics_class
class GpuMagics(Magics):
    """``%%gpu_train`` and its companions."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._notebook: Notebook | None = None

    @property
    def notebook(self) -> Notebook:
        """This kernel's side; made (and its modules imported) when it is first needed."""
        if self._notebook is None:
            with hold_interrupts():
                _import_all()
            from ..notebook import Notebook

            self._notebook = Notebook(self.shell)
        return self._notebook

    def find_target(self) -> Target | None:
        """The gateway that is known here, for what is shown while somebody types: on any thread, makes nothing."""
        from ...client.config import find_target, load_settings

        notebook = self._notebook
        known = notebook.__dict__.get("settings") if notebook is not None else None
        return find_target(known or load_settings(self.shell))

    def runs_in_background(self) -> list[str]:
        """The runs of this kernel whose names are awaited."""
        return [] if self._notebook is None else [run.run for run in self._notebook.background.under_way()]

    def close(self) -> None:
        """End the connection to the gateway."""
        if self._notebook is not None:
            self._notebook.close()

    @no_var_expand  # type: ignore[untyped-decorator]
    @line_cell_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_train(self, line: str, cell: str | None = None) -> None:  # noqa: D102 - written below, from the table
        from .cell import run_cell

        run_cell(self.notebook, line, cell)

    @line_magic("%gpu_train")  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_train_below(self, line: str) -> None:
        """Refuse ``%%gpu_train`` below another line: for IPython it is the line magic ``%gpu_train`` then."""
        raise OptionError(
            "%%gpu_train is not the first line of its cell: no GPU was taken",
            hint="put it above comments, imports and all else; or into a cell of its own",
        )

    @no_var_expand  # type: ignore[untyped-decorator]
    @line_cell_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_setup(self, line: str, cell: str | None = None) -> None:
        """Run a cell here and, from now on, first in each rank of this notebook: ``%%gpu_setup`` above the cell.

        For what other cells need and no name says: ``tqdm.pandas()``, accessors and converters that are registered,
        patches of libraries. It runs once per attempt, before the GPUs are taken. What it prints is shown here only.
        ``%gpu_setup --list`` shows the setup cells, ``%gpu_setup --clear`` forgets them.
        """
        from .setup import run_setup

        run_setup(self.notebook, line, cell)

    @no_var_expand  # type: ignore[untyped-decorator]
    @cell_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_sweep(self, line: str, cell: str) -> None:  # noqa: D102 - written below, from the table
        from .sweep import run_sweep

        run_sweep(self.notebook, line, cell)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_status(self, line: str) -> None:
        """Show the cluster: GPUs, who holds them, who waits and why."""
        from .cell import show_status

        show_status(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_queue(self, line: str) -> None:
        """Show who waits, why, and when each will start; of your own runs, what would start sooner."""
        from .cell import show_queue

        show_queue(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_env(self, line: str) -> None:
        """Show this notebook's packages that the cluster lacks, or has otherwise, and what a GPU cell gets of them."""
        from .packages import show_packages

        show_packages(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_doctor(self, line: str) -> None:
        """Look at kernel, gateway and each node, and say of what is wrong what to do about it.

        Versions, drivers, clocks, store, names, ports, firewalls, certificates. An interrupt ends it.
        """
        from .doctor import show_findings

        show_findings(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_runs(self, line: str) -> None:
        """List your newest runs; ``%gpu_runs 50`` shows more of them."""
        from .runs import show_runs

        show_runs(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_cancel(self, line: str) -> None:
        """End a run: ``%gpu_cancel RUN`` (a waiting one leaves the queue, a running one is interrupted)."""
        from .runs import cancel_run

        cancel_run(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_logs(self, line: str) -> None:
        """Show a run's recorded output again, text and displays: ``%gpu_logs RUN`` or ``%gpu_logs last``.

        Binds nothing; of a progress bar its last state is shown.
        """
        from .runs import replay

        replay(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_wait(self, line: str) -> None:
        """Wait for runs in the background and bind their names: ``%gpu_wait`` for all, ``%gpu_wait RUN`` for one.

        Raises the run's own error. An interrupt ends the waiting, not the run.
        """
        from .runs import wait

        wait(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_attach(self, line: str) -> None:
        """Bring a run back: ``%gpu_attach RUN`` or ``%gpu_attach last``, also in another kernel or days later.

        Its output plays back into the cell, goes on live, then its names are bound (or its error is raised). An
        interrupt ends the following, not the run.
        """
        from .runs import attach
        from .sweep import attach_named

        if not attach_named(self.notebook, line.strip()):
            attach(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_debug(self, line: str) -> None:
        """Debug a failed cell, here and without a GPU: ``%gpu_debug`` the latest, ``%gpu_debug RUN`` an older one.

        ``up``, ``down``, ``list``, ``args``, ``p name`` and ``exceptions`` as in ``%debug``: its frames came home with
        their variables. Of a gang it is the rank that failed first; ``--rank N``: this one.
        """
        from .runs import debug

        debug(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_detach(self, line: str) -> None:
        """Let a run in the background go on without this kernel: ``%gpu_detach`` for all, ``%gpu_detach RUN``."""
        from .runs import detach

        detach(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_release(self, line: str) -> None:
        """Give back the GPUs that this kernel keeps for its next cell (``--keep``), and say which."""
        from .runs import give_back

        give_back(self.notebook, line)

    @line_magic  # type: ignore[untyped-decorator]
    @_in_our_words
    def gpu_config(self, line: str) -> None:
        """Set this notebook's defaults.

        ``%gpu_config gpus=2 memory=8GiB`` sets, ``%gpu_config memory=`` takes one back, ``%gpu_config reset`` all,
        ``%gpu_config`` shows them.
        """
        from .cell import configure

        configure(self.notebook, line)


#: the first lines of ``%%gpu_train?``
EXAMPLES = """\
%%gpu_train                          one GPU for this cell; its names come back
%%gpu_train --gpus 2 --timeout 1h    two of them, for an hour at most
%gpu_train model.fit(X, y)           one line\
"""


#: the page about this magic, and how to read it where it has no address
_PAGE = "writing-a-cell"
_COMMAND = f"!jupyter gpu docs {_PAGE} (in a terminal without the !)"


def manual(documentation: str = _COMMAND) -> str:
    """The help: examples, where the documentation is, all options by what they are about."""
    groups = [f"{title.capitalize()}:\n" + "\n".join(map(_row, options)) for title, options in GROUPS.items()]
    return (
        f"{EXAMPLES}\n\nRun the cell (or one line) on the team's GPU cluster; its results come back as\n"
        f"ordinary objects.\nDocumentation: {documentation}\n\n" + "\n\n".join(groups)
    )


def _row(option: Option) -> str:
    head, indent = f"  --{option.name} {option.metavar}".rstrip(), " " * 31
    text = textwrap.fill(without_backticks(option.help), 80, initial_indent=indent, subsequent_indent=indent)
    return head + text[len(head) :] if len(head) < len(indent) else f"{head}\n{text}"


def installed_manual() -> str:
    """The help with something to click: the page's address, else its file beside the command that shows it."""
    from ...host.documentation import installed_pages, web_address

    file = installed_pages().get(_PAGE)
    return manual(web_address(_PAGE) or (_COMMAND if file is None else f"{_COMMAND}, or\n{file}"))


#: the first lines of ``%%gpu_sweep?``
SWEEP_EXAMPLES = """\
%%gpu_sweep --trials 64 --metric val_acc --max
lr = search(1e-4, 1e-1, log=True)    a range; search(1, 8): of whole numbers
width = search([64, 128, 256])       choices
val_acc = fit(build(width), lr)      what is searched for\
"""


def sweep_manual() -> str:
    """The help of ``%%gpu_sweep``."""
    return (
        f"{SWEEP_EXAMPLES}\n\nRun the cell many times on the team's GPU cluster, with other values where it\n"
        "says `name = search(…)` at its top level. The best trial's names are bound, and\n`sweep` has all trials.\n"
        f"Documentation: !jupyter gpu docs use/sweeps\n\nOptions, beside those of %%gpu_train for each trial:\n"
    ).replace("`", "") + "\n".join(map(_row, SEARCH))


GpuMagics.gpu_train.__doc__ = manual()
GpuMagics.gpu_sweep.__doc__ = sweep_manual()
#: IPython asks it for the help before it takes the docstring: to read the metadata takes milliseconds
setattr(GpuMagics.gpu_train, "getdoc", installed_manual)  # noqa: B010


def with_body(lines: list[str]) -> list[str]:
    """IPython refuses a cell that is a magic's line and nothing else; without that line it would be an empty cell."""
    text = "".join(lines).strip()
    return [f"{text}\n", "\n"] if text.startswith(("%%gpu_train", "%%gpu_sweep")) and "\n" not in text else lines
