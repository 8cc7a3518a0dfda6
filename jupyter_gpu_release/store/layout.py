"""Every file name on the store, in one place.

``<store>/runs/<run id>/``: ``manifest.json`` (gateway), ``events.log`` (node agent), ``inputs.graph`` and
``fetched-<n>.graph`` (kernel), ``values.graph`` (rank's persister or agent), ``files/`` (the cell's ``run_dir``),
``code/`` (shipped modules), ``published/`` and
``item-<n>.graph`` and ``save-<n>.graph`` (rank).
One writer per file: what a second and later attempts of a run write has their number in its name
(``values.1.graph``, :func:`of_attempt`), since a node that was given up may go on with an earlier one.

``<store>/users/<uid>/``: such a store for one user, where cells run as their owners (``store/private_stores.py``).

``<store>/studies/<user>/<name>.journal``: Optuna's studies of sweeps that have a name (``store/studies.py``).

``<store>/ledgers/``: copies of gateways' ledgers, each its service user's alone (``gateway/db/ledger_copy.py``).

``<store>/blobs/<dd>/<digest>``: buffers of 1 MiB and more, of all runs, by content (``store/blobs.py``);
``blobs/tmp/``: what
is being written.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import StoreError
from ..protocol.cell import Graph
from ..protocol.states import is_run_id

SCHEMA_VERSION = 1
#: what came out of a run
VALUES_FILE = "values.graph"
EVENTS_FILE = "events.log"
#: what a restartable run has saved without notice
SAVE_FILE = "save-{number}.graph"


def of_attempt(name: str, attempt: int | str) -> str:
    """The file name that an attempt has for ``name``: its own, so that no two attempts write into one place."""
    stem, dot, kind = name.partition(".")
    return f"{stem}.{attempt}{dot}{kind}" if attempt else name


def values_name(graph: Graph) -> str:
    """The name of the file on the store with these values, also of those that are inline."""
    return graph.file or graph.stored_as or VALUES_FILE


class RunPaths:
    """Paths of one run below the store's root (or of a run folder given as such), for one attempt at it."""

    def __init__(self, folder: Path, attempt: int = 0) -> None:
        self.folder = folder
        self.attempt = attempt

    @property
    def manifest(self) -> Path:
        """The record of what the run was and how it ended."""
        return self.folder / "manifest.json"

    @property
    def events(self) -> Path:
        """The log of its output, for readers: :mod:`.event_log` goes on with those of later attempts."""
        return self.folder / EVENTS_FILE

    @property
    def own_events(self) -> Path:
        """The log to which the attempt writes."""
        return self.folder / of_attempt(EVENTS_FILE, self.attempt)

    @property
    def inputs(self) -> Path:
        """The inputs that were sent, where they are too large for the message."""
        return self.folder / "inputs.graph"

    def fetched(self, number: int) -> Path:
        """The values that the cell asked for while it ran."""
        return self.folder / f"fetched-{number}.graph"

    def item(self, number: int) -> Path:
        """The value that one call of ``launch_map`` returned."""
        return self.folder / of_attempt(f"item-{number}.graph", self.attempt)

    @property
    def values(self) -> Path:
        """The values that came out of the run."""
        return self.folder / of_attempt(VALUES_FILE, self.attempt)

    @property
    def files(self) -> Path:
        """The cell's ``run_dir``."""
        return self.folder / "files"

    @property
    def code(self) -> Path:
        """Shipped modules."""
        return self.folder / "code"

    @property
    def published(self) -> Path:
        """Latest values of ``publish``, one file a name."""
        return self.folder / "published"

    @classmethod
    def of(cls, store: Path, run: str) -> RunPaths:
        """Paths of ``run`` in ``store``; refuses what is not a run id (it becomes a folder name)."""
        if not is_run_id(run):
            raise StoreError(f"{run!r} is not a run id", hint="list them with `jupyter gpu runs`")
        return cls(store / "runs" / run)


#: below a store's root: one store for each user, called by the user's number, where cells run as their owners
USERS_FOLDER = "users"


def own_store(store: Path) -> Path:
    """The store of this process's user, where users have stores of their own below ``store``; else ``store``."""
    own = store / USERS_FOLDER / str(os.geteuid())
    return own if os.path.isdir(own) else store  # False too where this user may not enter the store


def blobs_folder(store: Path) -> Path:
    """The folder of a store's blobs."""
    return store / "blobs"


def blobs_folder_beside(path: Path) -> Path | None:
    """The blobs of the store in whose ``runs/<run id>/`` this file lies (at any depth); None when it lies in none."""
    for folder in path.parents:
        if folder.parent.name == "runs" and is_run_id(folder.name):
            return blobs_folder(folder.parent.parent)
    return None
