"""Decisions in the words that somebody reads who is not named in them."""

from __future__ import annotations

from jupyter_gpu_release.presentation.wording import reason_words
from jupyter_gpu_release.scheduling import reasons
from jupyter_gpu_release.scheduling.decisions import Decision


def explain(decision: Decision) -> str:
    """One sentence."""
    return reason_words(reasons.explain(decision))
