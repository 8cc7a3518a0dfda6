"""``%gpu_doctor``: kernel, gateway and nodes, looked at from here; a finding each, with its cure."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...checks.finding import BROKEN, NOTE, OK, Finding, at, broken, broken_by, note, worst_first
from ...checks.gateway import STORE_S, check_cluster, check_used_store, check_within, used_store
from ...checks.home import check_home, check_token_file
from ...checks.limits import Check, findings_within
from ...checks.package import check_package
from ...client.config import find_target
from ...client.discovery import Target, is_alive
from ...client.home import HomePaths
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
        checks |= _checks_of(target)
    yield from at(_KERNEL, findings_within(_LIMIT_S, checks, where=_KERNEL))


def _checks_of(target: Target | None) -> dict[str, Check]:
    if target is None:
        return {"home": partial(check_home, HomePaths.from_environment()), "cluster": _no_cluster}
    if not is_alive(target):
        return {"cluster": _dead_cluster}
    checks: dict[str, Check] = {"token": partial(check_token_file, target.token_file)}
    if not target.configured:
        checks["home"] = partial(check_home, HomePaths.from_environment())
    if target.store:
        checks["store"] = partial(check_within, STORE_S, check_used_store, used_store(target.store))
    asked = partial(check_cluster, target, check_used_store, python=platform.python_version())
    return {**checks, "gateway": asked}


def _no_cluster() -> Iterable[Finding]:
    mend = "the first %%gpu_train starts this machine's own; JUPYTER_GPU_URL names the team's"
    return [note("cluster", "none is running here and no gateway is configured", mend)]


def _dead_cluster() -> Iterable[Finding]:
    mend = "the next %%gpu_train starts it anew; `jupyter gpu stop` clears away what is left"
    return [broken("cluster", "this machine's own cluster has ended, and left its connection file", mend)]


def findings_table(findings: Sequence[Finding]) -> Table:
    """The findings, what is broken first."""
    rows = [
        (_SIGNS[one.level], one.where, one.check, " → ".join(filter(None, [one.finding, one.hint])))
        for one in worst_first(findings)
    ]
    number = Counter(one.level for one in findings)
    title = f"{number[BROKEN]} broken, {number[NOTE]} worth knowing, {number[OK]} fine"
    return Table(title, ("", "where", "check", "finding → what to do"), rows, drop=("where", "check"))
