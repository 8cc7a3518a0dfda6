"""``%gpu_env``: the notebook's packages beside the cluster's, and which of them a GPU cell gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.display import display

from ...options.definitions import refuse_words
from ...submission.packages import CellPackages
from ...units import format_count
from ..runs.foreground import find_packages
from .tables import Table

if TYPE_CHECKING:
    from ..notebook import Notebook

_HEADS = ("package", "notebook", "cluster", "GPU cells find")


def show_packages(notebook: Notebook, line: str) -> None:
    """``%gpu_env``; nothing is built or started."""
    refuse_words("gpu_env", line)
    found = find_packages(notebook, notebook.options({}))
    if found is None:
        display(Table("GPU cells find the cluster's packages only, as this notebook's defaults say (`%gpu_config`)"))
    else:
        display(packages_table(found))


def packages_table(found: CellPackages) -> Table:
    """Table of what differs, a row for each package."""
    planned = found.plan.packages if found.plan is not None else []
    rows = [
        (each.name, each.version, found.there.get(each.name, ""), f"{each.version}: {each.reason}") for each in planned
    ]
    rows += [
        (
            each.name,
            each.notebook,
            each.cluster,
            " → ".join(filter(None, [_kept(each.cluster, each.reason), each.hint])),
        )
        for each in found.left_out
    ]
    if not rows:
        return Table("GPU cells find the same packages as this notebook")
    own = f"{format_count(len(planned), 'package')} of this notebook"
    kept = f", {len(found.left_out)} differ and are not" if found.left_out else ""
    return Table(f"In GPU cells are {own}{kept}; all others are the same, or the cluster's alone", _HEADS, sorted(rows))


def _kept(version: str, reason: str) -> str:
    return f"{version or 'none'}: {reason}"
