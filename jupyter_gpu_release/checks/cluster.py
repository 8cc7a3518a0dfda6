"""A cluster as a kernel or server sees it: whether there is one, the files that say where, its store, its gateway."""

from __future__ import annotations

from functools import partial

from ..client.discovery import HEAD_LOST, HEAD_MEND, Target, has_lost_head, is_alive
from ..client.home import HomePaths
from .finding import Finding, broken, note
from .gateway import STORE_S, check_cluster, check_used_store, check_within, used_store
from .home import check_home, check_token_file
from .limits import Check


def cluster_checks(target: Target | None, token_file: str = "", *, python: str = "") -> dict[str, Check]:
    """The checks of what ``target`` names; ``token_file``: in place of its own, ``python``: see `check_cluster`."""
    home = partial(check_home, HomePaths.from_environment())
    if target is None:
        return {"home": home, "cluster": lambda: [no_cluster()]}
    if not is_alive(target):
        return {"cluster": lambda: [dead_cluster(target)]}
    checks: dict[str, Check] = {"token": partial(check_token_file, token_file or target.token_file)}
    if not target.configured:
        checks["home"] = home
    if target.store:
        checks["store"] = partial(check_within, STORE_S, check_used_store, used_store(target.store))
    return {**checks, "gateway": partial(check_cluster, target, check_used_store, python=python)}


def no_cluster() -> Finding:
    """Tell how a machine without a cluster gets one."""
    mend = "the first %%gpu_train starts this machine's own, or `jupyter gpu start`; JUPYTER_GPU_URL names a team's"
    return note("cluster", "none is running here and no gateway is configured", mend)


def dead_cluster(target: Target) -> Finding:
    """Tell what to do about a cluster of this machine's that is not alive."""
    if has_lost_head(target):
        return broken("cluster", HEAD_LOST, HEAD_MEND)
    mend = "the next %%gpu_train starts it anew; `jupyter gpu stop` clears away what is left"
    return broken("cluster", "this machine's own cluster has ended, and left its connection file", mend)
