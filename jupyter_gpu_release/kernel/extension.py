"""``%load_ext jupyter_gpu_release``: registers the magics and takes them away again. Imports nothing heavy."""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import TYPE_CHECKING, Any

from ..adapters.stdlib import began  # noqa: F401 - reads what is usual before the first cell can change it
from ..cell_api.context import ExecutionContext, set_context
from ..client.tracebacks import end_tracebacks_at_users_line, show_whole_tracebacks
from .completion.hooks import CompletionHooks
from .interrupts import LateInterrupts
from .magics.magics import GpuMagics, with_body
from .no_gpu_here import NoGpuHere
from .output.figures import forget_figures, show_figures

if TYPE_CHECKING:
    from .completion.completer import MagicCompleter

_loaded: dict[int, GpuMagics] = {}
_late: dict[int, LateInterrupts] = {}
_completion: dict[int, CompletionHooks] = {}
_no_gpu: dict[int, NoGpuHere] = {}


def load(shell: Any) -> None:
    """Register the magics in ``shell``; a second call does nothing."""
    if id(shell) in _loaded:
        return
    magics = GpuMagics(shell)
    shell.register_magics(magics)
    shell.input_transformer_manager.cleanup_transforms.insert(0, with_body)
    _loaded[id(shell)] = magics
    end_tracebacks_at_users_line(shell)
    show_figures(shell)
    _late[id(shell)] = LateInterrupts(shell)
    _no_gpu[id(shell)] = NoGpuHere(shell)
    _completion[id(shell)] = CompletionHooks(shell, lambda: _completer(shell, magics))
    set_context(context_of(magics))


def unload(shell: Any) -> None:
    """Take the magics away and close the connection (attached runs end with it)."""
    magics = _loaded.pop(id(shell), None)
    if magics is None:
        return
    table = shell.magics_manager.magics
    for kind in ("line", "cell"):
        ours = GpuMagics.magics[kind]
        for name in ours:
            table[kind].pop(name, None)
    with contextlib.suppress(ValueError):  # the user has set the list anew
        shell.input_transformer_manager.cleanup_transforms.remove(with_body)
    forget_figures(shell)
    _late.pop(id(shell)).end()
    _completion.pop(id(shell)).end()
    _no_gpu.pop(id(shell)).end()
    magics.close()
    show_whole_tracebacks()
    set_context(None)


def _completer(shell: Any, magics: GpuMagics) -> MagicCompleter:
    from ..client.cluster_facts import ClusterFacts
    from .completion.completer import MagicCompleter

    return MagicCompleter(shell, ClusterFacts(magics.find_target), magics.runs_in_background)


def context_of(magics: GpuMagics) -> ExecutionContext:
    """Context that ``load`` and ``published`` find in this kernel; nothing is imported before they are used."""
    return ExecutionContext(
        realm=lambda: magics.notebook.names.realm,
        find_target=lambda: magics.notebook.connection.target(magics.notebook.settings),
        store=lambda: magics.notebook.settings.store,
        session=lambda: magics.notebook.connection.session(magics.notebook.settings).session_id,
        loaded=lambda run, values: magics.notebook.names.note_loaded(run, values),
        published=lambda name, run: magics.notebook.published.find(name, run),
        launcher=lambda: magics.notebook.launcher,
    )


_pid = os.getpid()


def _close_all() -> None:
    """A kernel that ends says good-bye, so that its runs end now and not after the reconnect grace."""
    if os.getpid() != _pid:
        return
    for magics in _loaded.values():
        magics.close()


atexit.register(_close_all)
