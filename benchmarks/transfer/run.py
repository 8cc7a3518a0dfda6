"""Values on their way through the store: against ``numpy.save``/``load``, torch and cloudpickle in the same run.

One module a part: the store alone (``store``), small objects (``objects``), and what needs a
cluster (``cluster``, ``throttled``). A part is a function that adds its metrics to the report.
"""

from __future__ import annotations

from ..report import Report
from .cluster import gpu_to_gpu
from .listing import add_listing
from .objects import many_names, many_objects
from .store import large_in, large_out
from .throttled import lease_gone_throttled

PARTS = (large_in, large_out, many_names, many_objects, gpu_to_gpu, add_listing)


def run(*, quick: bool) -> Report:
    """All parts, one after the other; ratios are theirs ÷ ours (the issue's limits are their inverse)."""
    report = Report("transfer")
    for part in PARTS:
        part(report, quick=quick)
    if not quick:
        lease_gone_throttled(report)
    report.notes.append("touching: one byte of every page; dumps are durable files on both sides")
    if quick:
        report.notes.append(
            "--quick: an eighth of 1 GiB, a tenth of the names, objects and runs: no figure of the issue's"
        )
    return report
