"""Completion in a shell, by argcomplete: commands, options, runs with what they were."""

from __future__ import annotations

import argparse
from typing import Any

import argcomplete
from argcomplete.completers import ChoicesCompleter, DirectoriesCompleter, FilesCompleter, SuppressCompleter

from ...client.cluster_facts import ClusterFacts
from ...client.config import configured_target
from ..parser import RUNS_ACTIONS, build

#: of Tab in a shell, which nothing else waits for
_PATIENCE_S = 1.0
#: commands that take only runs that are not over
_LIVE = frozenset({"cancel"})
_OF_ONE_RUN = frozenset(RUNS_ACTIONS) - {"import"}
_BY_METAVAR = {
    "NOTEBOOK": FilesCompleter(("ipynb",)),
    "FILE": FilesCompleter(),
    "PATH": DirectoriesCompleter(),
    "ACTION": ChoicesCompleter(RUNS_ACTIONS),
}


def complete() -> None:
    """Answer the shell, which has set ``_ARGCOMPLETE``, and end this process."""
    parser, commands = build()
    for name, command in commands.items():
        for action in command._actions:
            completer = _completer_of(action, name)
            if completer is not None:
                action.completer = completer  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False, default_completer=SuppressCompleter())


def _completer_of(action: argparse.Action, command: str) -> Any:
    if action.metavar == "RUN":
        runs = Runs(live=command in _LIVE)
        return runs if command != "runs" else After(_OF_ONE_RUN, runs)
    if action.metavar == "FILE" and command == "runs":
        return After(frozenset({"export", "import"}), FilesCompleter())
    return _BY_METAVAR.get(str(action.metavar))


class After:
    """Completes what only some actions of ``runs`` take: argparse would let all its words be left out."""

    def __init__(self, actions: frozenset[str], completer: Any) -> None:
        self._actions = actions
        self._completer = completer

    def __call__(self, *, parsed_args: argparse.Namespace, **more: Any) -> Any:
        """Nothing, or what the completer has."""
        chosen = getattr(parsed_args, "action", None)
        return self._completer(parsed_args=parsed_args, **more) if chosen in self._actions else []


class Runs:
    """The ids of the user's newest runs, described in shells that show it; argcomplete calls it."""

    def __init__(self, *, live: bool) -> None:
        self._live = live

    def __call__(self, **_: Any) -> dict[str, str]:
        """Id → what it was; nothing without a cluster."""
        runs = ClusterFacts(configured_target).runs(_PATIENCE_S)
        found = {run.run: run.about for run in runs if not (self._live and run.is_over)}
        return {"last": "the newest", **found} if found else {}
