"""Notebook cells that take GPUs from the team's Ray cluster and give them back after the last statement.

``%load_ext jupyter_gpu_release`` registers the magics; nothing heavy (no Ray, no framework) is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from .client.results import Results
    from .functions.api import gpu as gpu
    from .functions.api import launch as launch
    from .functions.api import launch_map as launch_map
    from .functions.api import sweep as sweep

run_dir: Path


def load(run: str) -> Results:
    """Results of a run by reference: a mapping from names to values; large arrays are mapped, not copied.

    Works in any notebook, in scripts and in GPU cells. Used as input of a GPU cell a result is not written again.
    Without a gateway the store is read alone, where its files are nobody else's, with a warning.

    Parameters
    ----------
    run : str
        The run's id, as ``%gpu_runs`` (``jupyter gpu runs``) lists it, or ``last``: your newest (not in GPU cells).

    Returns
    -------
    Results
        Names to values, of a run that failed those that were salvaged; ``notes`` says what could not be rebuilt here.

    Raises
    ------
    NoSuchRunError
        There is no such run, or it is another user's.
    StillTrainingError
        It is not over.
    RunFailedError
        It left no results.
    StoreError
        The store cannot be seen, or what lies there is damaged.
    """
    from .client.loading import load_results

    return load_results(run)


def publish(**values: Any) -> None:
    """Show values of a running GPU cell to its notebook: ``publish(loss=loss, history=history)``.

    The notebook reads the latest with :func:`published`; names that ``--async`` awaits are bound to it before each
    of its cells runs. Call it as often as you like: only the latest counts, and at most a few a second are sent.
    Never fails the cell. With several ranks the first one publishes. Outside of a GPU cell it does nothing.

    Parameters
    ----------
    **values
        The values by name, as they are now; what cannot be sent is left out with a note below the cell.
    """
    from .cell_api.context import current_context

    around = current_context()
    if around is not None:
        around.publish(values)


def published(name: str, run: str | None = None) -> Any:
    """The latest value of ``name`` that a run has published.

    Parameters
    ----------
    name : str
        As in ``publish(name=value)``.
    run : str, optional
        The run's id. Without it: the run of this notebook that published ``name`` last.

    Returns
    -------
    object
        The value as it was when it was sent; a copy, never the cell's own object.

    Raises
    ------
    NothingPublishedError
        No run has published it (yet).
    """
    from .client.published_values import latest_published

    return latest_published(name, run)


def __getattr__(name: str) -> object:
    """``run_dir``: the folder (also ``$GPU_RUN_DIR``) whose files are results of the running GPU cell.

    ``track(path)``: record a data file that the cell reads.

    ``resumable(iterable)``: a loop that a restartable cell can leave and enter again.

    ``checkpoint(state)``, ``restore()``: the same for functions and scripts.

    ``report(step, value)``: how a trial of a sweep is doing.

    ``search(low, high)``: what a ``%%gpu_sweep`` cell tries for a name.

    ``ranks``: which process of a gang this is; ``ranks.barrier()``, ``ranks.broadcast(value)``.
    """
    if name == "run_dir":
        import os
        from pathlib import Path

        folder = os.environ.get("GPU_RUN_DIR")
        if not folder:
            raise AttributeError("run_dir exists inside a GPU cell only (%%gpu_train)")
        return Path(folder)
    if name == "resumable":
        from .cell_api.resumable import resumable

        return resumable
    if name in ("checkpoint", "restore"):
        from .cell_api import checkpoint

        return getattr(checkpoint, name)
    if name == "track":
        from .cell_api.tracked_files import track

        return track
    if name == "report":
        from .cell_api.report import report

        return report
    if name == "search":
        from .cell_api.search import search

        return search
    if name in ("launch", "launch_map", "gpu", "sweep"):
        from .functions import api

        return getattr(api, name)
    if name == "ranks":
        from .cell_api.ranks import ranks

        return ranks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register ``%%gpu_train`` and its companions in this shell (called by ``%load_ext``)."""
    from .kernel.extension import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magics away again and close the connection to the gateway (called by ``%unload_ext``)."""
    from .kernel.extension import unload

    unload(shell)


def _jupyter_server_extension_points() -> list[dict[str, object]]:
    """Tell the Jupyter server where its extension is (enabled by ``jupyter_server_config.d``)."""
    from .server_extension.app import GpuReleaseExtension

    return [{"module": "jupyter_gpu_release.server_extension.app", "app": GpuReleaseExtension}]
