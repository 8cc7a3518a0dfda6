"""The study of a sweep that has a name: a journal on the store, and the trials that earlier sweeps of it have made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import ConflictError, OptionError
from ..protocol.states import RunState
from ..store.files import make_store_folder
from .executor import FunctionExecutor
from .trial import COMPLETE, PRUNED, SweepTrial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import JournalStorage
    from optuna.trial import BaseTrial, FrozenTrial

    from .search_space import SearchSpace

#: attribute of a trial in Optuna's study: its run and its parameters
_FACTS = "jupyter_gpu_release"


def open_journal(store: Path, user: str, name: str) -> JournalStorage:
    """The storage of a user's studies of that name; raises :class:`StoreError`."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    studies = store / "studies"
    folder = studies / quote(user, safe="")
    make_store_folder(studies)
    make_store_folder(folder)
    return JournalStorage(JournalFileBackend(str(folder / f"{quote(name, safe='')[:200]}.journal")))


def note_run(trial: BaseTrial, run: str, parameters: Mapping[str, Any]) -> None:
    """Say in the study which run a trial is; before that is sent, so that none is without."""
    trial.set_user_attr(_FACTS, {"run": run, "parameters": dict(parameters)})


def kept_trials(study: Study, space: SearchSpace, executor: FunctionExecutor, name: str) -> list[SweepTrial]:
    """The trials that went well or were pruned; those that nobody drives any more are told to have failed.

    Raises :class:`ConflictError` where another sweep of this name goes on, :class:`OptionError` for another list.
    """
    from optuna.trial import TrialState

    kept = []
    for trial in study.get_trials(deepcopy=False):
        facts = trial.user_attrs.get(_FACTS)
        if trial.state == TrialState.RUNNING:
            _end(study, trial, executor, name)
        elif facts is not None and trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            _check_setting(trial, space, facts["parameters"])
            state = COMPLETE if trial.state == TrialState.COMPLETE else PRUNED
            future = executor.earlier(facts["run"], name)
            found = SweepTrial(trial.number, facts["parameters"], trial, future, state, trial.value)
            found.steps.update(trial.intermediate_values)
            kept.append(found)
    return kept


def _end(study: Study, trial: FrozenTrial, executor: FunctionExecutor, name: str) -> None:
    """It was under way when its notebook ended."""
    from optuna.trial import TrialState

    facts = trial.user_attrs.get(_FACTS)
    run = executor.earlier(facts["run"], name) if facts is not None else None
    if run is not None and not RunState.of(run.status).is_terminal:
        raise ConflictError(
            f"another sweep {name} goes on: its run {run.id} is {run.status}",
            hint=f"`jupyter gpu cancel {run.view.sweep or run.id}` ends it; or give this one another name",
        )
    study.tell(trial.number, state=TrialState.FAIL)


def _check_setting(trial: FrozenTrial, space: SearchSpace, parameters: Any) -> None:
    """Of a list of settings the study knows the numbers only."""
    if not space.settings:
        return
    known = dict(enumerate(space.settings)).get(trial.params.get("setting", -1))
    if json.dumps(parameters) != json.dumps(known):  # a journal makes lists of tuples
        raise OptionError(
            f"the study is of another space: it has {parameters}",
            hint="give the list that it was begun with, or another name=",
        )
