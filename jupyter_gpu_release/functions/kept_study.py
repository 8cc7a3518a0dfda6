"""The study of a sweep that has a name, or is driven on the cluster: a journal on the store, and its earlier trials."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ..errors import ConflictError, OptionError, StoreError
from ..protocol.states import RunState
from ..store.files import SHARED_FILE, is_shared, make_store_folder
from ..store.studies import study_path
from .executor import FunctionExecutor
from .trial import COMPLETE, FAILED, PRUNED, RUNNING, SweepTrial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import JournalStorage
    from optuna.trial import BaseTrial, FrozenTrial

    from .future import RunFuture
    from .search_space import SearchSpace

#: attribute of a trial in Optuna's study: its run, its parameters, its metric and its sweep; of the study:
#: :class:`SweepFacts`
_FACTS = "jupyter_gpu_release"
#: of a trial that failed
_ERROR = "jupyter_gpu_release_error"
#: of the one study in a journal
STUDY = "sweep"
_FILE = "journal:"


class SweepFacts(msgspec.Struct, frozen=True):
    """Facts of the sweep that is driven on the cluster, for those who watch it. ``sweep``: the run that drives it."""

    sweep: str
    name: str
    metric: str
    mode: str
    trials: int
    #: its trials are those of a cell, which leave names
    is_cell: bool
    #: of a study of the user's own: where others can open it; empty: nobody knows
    storage: str | None = None
    study: str = STUDY

    def has(self, trial: BaseTrial | FrozenTrial) -> bool:
        """Tell if the sweep has made this trial."""
        return bool(trial.user_attrs.get(_FACTS, {}).get("sweep") == self.sweep)


def open_journal(store: Path, user: str, name: str) -> JournalStorage:
    """The storage of a user's studies of that name; raises :class:`StoreError`."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = study_path(store, user, name)
    make_store_folder(path.parent.parent)
    make_store_folder(path.parent)
    storage = JournalStorage(JournalFileBackend(str(path)))
    with contextlib.suppress(PermissionError):  # the run that drives the study may be another user's, and was first
        path.touch()  # used: it is kept for longer
        if is_shared(path.parent):
            path.chmod(SHARED_FILE)
    return storage


def note_sweep(study: Study, facts: SweepFacts) -> None:
    """Say in the study which run drives it now."""
    study.set_user_attr(_FACTS, msgspec.to_builtins(facts))


def sweep_of(study: Study) -> SweepFacts | None:
    """The sweep that is (or was last) driven on the cluster."""
    facts = study.user_attrs.get(_FACTS)
    return None if facts is None else msgspec.convert(facts, SweepFacts)


def note_run(trial: BaseTrial, run: str, parameters: Mapping[str, Any], metric: str, sweep: str) -> None:
    """Say in the study which run a trial is; before that is sent, so that none is without."""
    trial.set_user_attr(_FACTS, {"run": run, "parameters": dict(parameters), "metric": metric, "sweep": sweep})


def check_metric(trial: FrozenTrial, metric: str) -> None:
    """Raise :class:`OptionError` where a sweep has made the trial for another metric: their values do not compare."""
    noted = trial.user_attrs.get(_FACTS, {}).get("metric", metric)
    if noted != metric:
        raise OptionError(
            f"metric={metric!r}, and the study has trials of {noted!r}",
            hint="give the metric that it was begun with, or make a new study (another name=)",
        )


def note_error(trial: BaseTrial, error: str) -> None:
    """Say in the study why a trial is about to have failed."""
    trial.set_user_attr(_ERROR, error)


def refuse_driven(study: Study, executor: FunctionExecutor) -> None:
    """Raise :class:`ConflictError` where a run on the cluster drives the study."""
    facts = sweep_of(study)
    if facts is not None and not RunState.of(executor.earlier(facts.sweep, facts.name).status).is_terminal:
        raise ConflictError(
            f"another sweep {facts.name} goes on: run {facts.sweep} drives it",
            hint=f"%gpu_attach {facts.sweep} shows it, `jupyter gpu cancel {facts.sweep}` ends it",
        )


def copy_trials(own: Study, study: Study) -> None:
    """Copy those that are over, and those that somebody has put into it; they are no trials of this sweep."""
    from optuna.trial import TrialState

    for trial in own.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.WAITING)):
        trial.user_attrs.pop(_FACTS, None)
        study.add_trial(trial)


def storage_of(study: Study) -> str:
    """Where others can open a study of the user's own: the address of a database, or a journal's file.

    Empty: nobody can. An address that has a password is written nowhere.
    """
    from optuna.storages import RDBStorage
    from optuna.storages.journal import JournalFileBackend

    backend = getattr(study._storage, "_backend", study._storage)
    if isinstance(backend, JournalFileBackend):
        return f"{_FILE}{os.path.abspath(backend._file_path)}"
    return backend.url if isinstance(backend, RDBStorage) and not urlsplit(backend.url).password else ""


def open_study(facts: SweepFacts) -> Study:
    """The study of the user's own that a sweep uses; raises :class:`StoreError`."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    place = facts.storage or ""
    try:
        if not place.startswith(_FILE):
            return optuna.load_study(study_name=facts.study, storage=place)
        path = os.fspath(Path(place.removeprefix(_FILE)).resolve(strict=True))  # Optuna would make the file
        return optuna.load_study(study_name=facts.study, storage=JournalStorage(JournalFileBackend(path)))
    except Exception as error:  # noqa: BLE001 - of any database
        raise StoreError(
            f"the study of sweep {facts.name} cannot be opened here: {type(error).__name__}: {error}",
            hint=f"`jupyter gpu runs show {facts.sweep}` has what the run that drives it says",
        ) from None


def kept_trials(study: Study, space: SearchSpace, executor: FunctionExecutor, name: str) -> list[SweepTrial]:
    """The trials that went well or were pruned; those that nobody drives any more are told to have failed.

    Raises :class:`ConflictError` where another sweep of this name goes on, :class:`OptionError` for another list.
    """
    from optuna.trial import TrialState

    kept, found = [], study.get_trials(deepcopy=False)
    futures = _futures_of((trial for trial in found if trial.state != TrialState.FAIL), executor, name)
    for trial in found:
        facts = trial.user_attrs.get(_FACTS)
        if trial.state == TrialState.RUNNING:
            _end(study, trial, futures.get(trial.number), name)
        elif facts is not None and trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            _check_setting(trial, space, facts["parameters"])
            kept.append(trial_as_kept(trial, futures[trial.number]))
    return kept


def _futures_of(trials: Iterable[FrozenTrial], executor: FunctionExecutor, name: str) -> dict[int, RunFuture[Any]]:
    """Number of each trial that has a run → that run."""
    noted = {trial.number: trial.user_attrs.get(_FACTS, {}) for trial in trials}
    sweeps = {facts["run"]: facts["sweep"] for facts in noted.values() if facts.get("run")}
    futures = executor.earlier_trials(sweeps, name) if sweeps else {}
    return {number: futures[facts["run"]] for number, facts in noted.items() if facts.get("run")}


def earlier_of(study: Study, executor: FunctionExecutor, name: str) -> list[SweepTrial]:
    """The trials of the study that went well or were pruned."""
    from optuna.trial import TrialState

    ended = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    futures = _futures_of(ended, executor, name)
    return [trial_as_kept(trial, futures[trial.number]) for trial in ended if trial.number in futures]


def own_trials(study: Study, space: SearchSpace, executor: FunctionExecutor, facts: SweepFacts) -> list[SweepTrial]:
    """The same for a sweep whose driver begins again: its failed trials are kept too, and those under way go on.

    A trial that has ended for want of a driver, or was never sent, is tried again.
    """
    from optuna.trial import Trial, TrialState

    again = not space.fixed_points(facts.trials)  # else its point is among those that are left
    kept = []
    # others may use the user's own study, too
    found = [each for each in study.get_trials(deepcopy=False) if facts.storage is None or facts.has(each)]
    futures = _futures_of(found, executor, facts.name)
    for trial in found:
        noted = trial.user_attrs.get(_FACTS, {"run": "", "sweep": ""})
        is_own, future = facts.has(trial), futures.get(trial.number)
        if trial.state == TrialState.RUNNING and (future is None or future.status in _GONE):
            asked = Trial(study, trial._trial_id)
            asked.set_user_attr(_FACTS, {**noted, "sweep": ""})  # it is no failure of this sweep's
            study.tell(trial.number, state=TrialState.FAIL)
            if again and future is not None:
                study.enqueue_trial(trial.params)
        elif future is not None and (is_own or trial.state in (TrialState.COMPLETE, TrialState.PRUNED)):
            kept.append(trial_as_kept(trial, future))
            if trial.state == TrialState.RUNNING:
                kept[-1].asked = Trial(study, trial._trial_id)
    return kept


#: ends of a run that say nothing of its trial
_GONE = (RunState.CANCELLED.word, RunState.LOST.word)


def trial_as_kept(trial: FrozenTrial, future: RunFuture[Any]) -> SweepTrial:
    """A trial as its study has it."""
    from optuna.trial import TrialState

    states = {TrialState.COMPLETE: COMPLETE, TrialState.PRUNED: PRUNED, TrialState.FAIL: FAILED}
    state, value = states.get(trial.state, RUNNING), trial.value if trial.state == TrialState.COMPLETE else None
    error = trial.user_attrs.get(_ERROR, "")
    parameters = trial.user_attrs[_FACTS]["parameters"]
    found = SweepTrial(trial.number, parameters, trial, future, state, value, error=error)
    found.steps.update(trial.intermediate_values)
    return found


def run_of(trial: FrozenTrial, facts: SweepFacts) -> str:
    """The run of a trial that this sweep has made or kept; empty: it is none of its trials."""
    from optuna.trial import TrialState

    noted = trial.user_attrs.get(_FACTS)
    keeps = facts.storage is None and trial.state != TrialState.FAIL
    return str(noted["run"]) if noted is not None and (keeps or facts.has(trial)) else ""


def _end(study: Study, trial: FrozenTrial, run: RunFuture[Any] | None, name: str) -> None:
    """It was under way when its notebook ended."""
    from optuna.trial import TrialState

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
