"""The way a sweep searches: metric, number of trials, Optuna's sampler, pruner and study."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from .kept_study import STUDY, check_metric, copy_trials, kept_trials, refuse_driven
from .mapped_futures import places
from .trial import COLUMNS, SweepTrial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

    from .executor import FunctionExecutor
    from .search_space import SearchSpace

_DIRECTIONS = {"min": "minimize", "max": "maximize"}
_PRUNERS = {"asha": "SuccessiveHalvingPruner", "hyperband": "HyperbandPruner", "median": "MedianPruner"}

_COPIED = "the study is in memory, so it is copied to the store: sweep.study gets the trials, and yours stays as it is"


@dataclass(frozen=True)
class Search:
    """As :func:`.sweep` was told; :meth:`check` raises what is wrong."""

    metric: str
    mode: str
    trials: int | None
    max_gpus: int | None
    max_failures: int
    sampler: BaseSampler | None
    pruner: BasePruner | str | None
    study: Study | None

    def check(self, space: SearchSpace) -> None:
        """Refuse what cannot be, before anything is queued."""
        if self.mode not in _DIRECTIONS:
            raise OptionError(f"mode={self.mode!r}: neither 'min' nor 'max'", hint="write mode='max', or mode='min'")
        for name, value in {
            "trials": self.trials,
            "max_gpus": self.max_gpus,
            "max_failures": self.max_failures,
        }.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise OptionError(f"{name}={value!r}: not a number from 1 on", hint=f"write {name}=8")
        if self.metric in COLUMNS:
            raise OptionError(f"metric={self.metric!r}: a column of sweep.trials has that name", hint="rename it")
        if self.trials is None and space.size is None:
            raise OptionError("the space has no end: nobody knows how many trials there are", hint="write trials=64")
        if self.trials is not None and space.size is not None and self.trials > space.size:
            raise OptionError(
                f"trials={self.trials}, and the space has {space.size} points",
                hint="leave trials out: each is tried once",
            )
        self._check_kinds()
        if self.study is not None and (self.sampler is not None or self.pruner is not None):
            raise OptionError("a study= has its own sampler and pruner", hint="give them to optuna.create_study()")

    def _check_kinds(self) -> None:
        from optuna import Study
        from optuna.pruners import BasePruner
        from optuna.samplers import BaseSampler

        names = ", ".join(_PRUNERS)
        for name, value, kinds, several, hint in (
            ("sampler", self.sampler, BaseSampler, "samplers", "give one, such as optuna.samplers.RandomSampler()"),
            ("pruner", self.pruner, BasePruner | str, "pruners", f"write {names}, or give one of optuna.pruners"),
            ("study", self.study, Study, "studies", "give what optuna.create_study() or load_study() returns"),
        ):
            if value is not None and not isinstance(value, kinds):
                raise OptionError(f"{name}={value!r}: none of Optuna's {several}", hint=hint)

    def at_once(self, gpus: float, total: int) -> int:
        """Number of trials under way at most; without a limit the one that waits is limit enough (nodes may come)."""
        if self.max_gpus is None:
            return sys.maxsize if gpus else places(gpus, total)
        if gpus > self.max_gpus:
            raise OptionError(
                f"max_gpus={self.max_gpus}, and a trial takes {gpus}", hint=f"write max_gpus={gpus} or more"
            )
        return int(self.max_gpus / gpus) if gpus else self.max_gpus

    @property
    def is_in_memory(self) -> bool:
        """Tell if the study is the user's own, and of this process alone."""
        from optuna.storages import InMemoryStorage

        return self.study is not None and isinstance(self.study._storage, InMemoryStorage)

    def on_store(self) -> Search:
        """The same with a study on the store, which has sampler and pruner of the user's own."""
        own = self.study
        return self if own is None else replace(self, study=None, sampler=own.sampler, pruner=own.pruner)

    def study_of(self, space: SearchSpace, storage: BaseStorage | None = None) -> Study:
        """The user's own study, or that in ``storage``, if it is of this space; else a new one in memory."""
        from optuna.trial import TrialState

        study = self.study or self._new_study(storage)
        direction = _DIRECTIONS[self.mode]
        if [each.name.lower() for each in study.directions] != [direction]:
            raise OptionError(
                f"mode={self.mode!r}, and the study does not {direction}", hint="give the study's own mode="
            )
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)):
            _check_same_space(trial.distributions, space)
            check_metric(trial, self.metric)
        return study

    def study_on_store(
        self, space: SearchSpace, journal: BaseStorage, executor: FunctionExecutor, name: str
    ) -> tuple[Study, list[SweepTrial]]:
        """The study in that journal, and the trials that it has; one in memory is copied there, which is said.

        Raises :class:`ConflictError` where it is driven, :class:`OptionError` where it does not go with ``study=``.
        """
        if self.study is not None:
            self.study_of(space)
        study = self.on_store().study_of(space, journal)
        refuse_driven(study, executor)
        kept = kept_trials(study, space, executor, name)
        if self.study is not None and study.get_trials(deepcopy=False):
            raise OptionError(
                f"study=: the store has a study of sweep {name} already",
                hint="leave study= out to continue that one, or give another name=",
            )
        if self.study is not None and self.is_in_memory:
            copy_trials(self.study, study)
            warnings.warn(_COPIED, UserWarning, stacklevel=5)
        return study, kept

    def _new_study(self, storage: BaseStorage | None) -> Study:
        import optuna

        sampler = self.sampler or optuna.samplers.TPESampler(constant_liar=True)
        direction, pruner = _DIRECTIONS[self.mode], self._pruner()
        told = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # else it says that there is a new study
        try:
            return optuna.create_study(
                storage=storage,
                study_name=None if storage is None else STUDY,
                load_if_exists=True,
                direction=direction,  # type: ignore[arg-type]
                sampler=sampler,
                pruner=pruner,
            )
        finally:
            optuna.logging.set_verbosity(told)

    def _pruner(self) -> Any:
        import optuna

        if not isinstance(self.pruner, str):
            return self.pruner
        if self.pruner not in _PRUNERS:
            raise OptionError(
                f"pruner={self.pruner!r}: there is none of that name",
                hint=f"write {', '.join(_PRUNERS)}, or give one of optuna.pruners",
            )
        return getattr(optuna.pruners, _PRUNERS[self.pruner])()


def _check_same_space(before: Any, space: SearchSpace) -> None:
    """Of a function of the trial nobody knows; Optuna itself refuses what does not fit."""
    if space.distributions and before and before != space.distributions:
        names = ", ".join(
            f"{name}={before.get(name)}" for name in before if before[name] != space.distributions.get(name)
        )
        lacks = f"it lacks {', '.join(space.distributions.keys() - before.keys())}"
        raise OptionError(
            f"the study is of another space: {names or lacks}",
            hint="give the space that it was begun with, or make a new study (another name=)",
        )
