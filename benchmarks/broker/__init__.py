"""The gateway under load: the scalability test of Kueue, without Ray below it."""

from .benchmark import run

__all__ = ["run"]
