"""The question for versions that nobody has chosen yet: those of ``--pip``, and where neither side has a fit one."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..errors import ImpossibleAskError
from ..protocol.environments import Installed, Plan, Question
from .owned import GPU_LIBRARIES, Owned
from .requirements import Requirements


def make_question(plan: Plan, notebook: Installed, cluster: Installed, owned: Iterable[str] = ()) -> Question:
    """Return the question for ``plan.requests``.

    Raises :class:`ImpossibleAskError` when one of them is the cluster's own.
    """
    ours = Owned(cluster, owned, plan.interpreter)
    there = {each.name: each for each in cluster.distributions}
    for request in plan.requests:
        name = str(canonicalize_name(Requirement(request).name))
        if name in ours:
            has = f"it has {there[name].version}" if name in there else "it has none"
            raise ImpossibleAskError(
                f"{request}: {name} is the cluster's to install, and {has}",
                hint="leave it away, or name an environment that has it (`--environment`)",
            )
    needs = Requirements(cluster.markers)
    constraints = [f"{each.name}=={each.version}" for each in plan.packages if not each.is_shipped]
    for each in cluster.distributions:
        if each.name in ours:
            constraints += [f"{name}{versions}" for name, versions in needs.of(each).items() if name not in ours]
    names = {each.name for each in (*notebook.distributions, *cluster.distributions)}
    excluded = {name for name in names if name in ours}
    excluded |= {name for name in GPU_LIBRARIES if "*" not in name and name in ours}
    excluded |= {each.name for each in plan.packages if each.is_shipped}
    preferred = {each.name: each.version for each in (*cluster.distributions, *notebook.distributions)}
    return Question(
        list(plan.requests),
        sorted(set(constraints)),
        sorted(excluded),
        [f"{name}=={version}" for name, version in sorted(preferred.items()) if name not in excluded],
        plan.interpreter,
    )
