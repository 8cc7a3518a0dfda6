"""Python's seed for the hashes of texts, which the order of sets follows: one for kernels and ranks.

With seeds of their own, an index built from a set in a cell here is wrong in a cell there, without any error.
"""

from __future__ import annotations

from collections.abc import Mapping

VARIABLE = "PYTHONHASHSEED"
#: for clusters, and for kernels of a Jupyter server, of which nobody says otherwise: they agree without a word
DEFAULT = "20131"


def seed_in(environment: Mapping[str, str]) -> str:
    """The seed of a Python that was started with this environment; empty: a random one."""
    seed = environment.get(VARIABLE, "")
    return seed if seed.isdigit() else ""


def seed_for_kernel(environment: Mapping[str, str], cluster: str) -> dict[str, str]:
    """What a kernel gets so that it agrees with the cluster (``cluster``: its seed, if known); what is set stays."""
    return {} if environment.get(VARIABLE) else {VARIABLE: cluster or DEFAULT}
