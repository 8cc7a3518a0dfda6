"""``%gpu_doctor``: kernel, gateway and nodes, looked at from here; a finding each, with its cure."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...checks.cluster import cluster_checks
from ...checks.finding import BROKEN, NOTE, OK, Finding, at, broken_by, worst_first
from ...checks.limits import Check, findings_within
from ...checks.package import check_package
from ...client.config import find_target
from ...errors import GpuReleaseError
from ...options.definitions import refuse_words
from ...presentation.status_line import StatusLine
from ..output.cell_output import CellOutput
from .tables import Table

if TYPE_CHECKING:
    from ..notebook import Notebook

_KERNEL = "kernel"
_SIGNS = {OK: "✓", NOTE: "·", BROKEN: "✗"}
#: the gateway gives each node 30 s
_LIMIT_S = 45.0


def show_findings(notebook: Notebook, line: str) -> None:
    """``%gpu_doctor``. An interrupt ends it at once; it takes 45 s at most, whatever hangs."""
    refuse_words("gpu_doctor", line)
    status = StatusLine(CellOutput(notebook.shell))
    status.show_text("looking at kernel, gateway and nodes …")
    try:
        table = findings_table(list(_findings(notebook)))
    except BaseException:
        status.end("looking at kernel, gateway and nodes: not done")
        raise
    status.finish({"text/plain": repr(table), "text/html": table._repr_html_()}, {})


def _findings(notebook: Notebook) -> Iterator[Finding]:
    checks: dict[str, Check] = {"package": partial(check_package, "restart this kernel")}
    try:
        target = find_target(notebook.settings)
    except GpuReleaseError as error:
        yield broken_by("settings", error, where=_KERNEL)
    else:
        checks |= cluster_checks(target, python=platform.python_version())
    yield from at(_KERNEL, findings_within(_LIMIT_S, checks, where=_KERNEL))


def findings_table(findings: Sequence[Finding]) -> Table:
    """The findings, what is broken first."""
    rows = [
        (_SIGNS[one.level], one.where, one.check, " → ".join(filter(None, [one.finding, one.hint])))
        for one in worst_first(findings)
    ]
    number = Counter(one.level for one in findings)
    title = f"{number[BROKEN]} broken, {number[NOTE]} worth knowing, {number[OK]} fine"
    return Table(title, ("", "where", "check", "finding → what to do"), rows, drop=("where", "check"))
