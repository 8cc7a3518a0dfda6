"""One row for all trials of a sweep, in lists of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ..protocol.rest import RunRow
from ..protocol.states import RunState
from .wording import word_of


def fold_sweeps(runs: Sequence[RunRow]) -> list[RunRow]:
    """The rows, newest first; those of a sweep's trials become one, where its newest stood."""
    trials: dict[str | int, list[RunRow]] = {}
    for at, run in enumerate(runs):
        trials.setdefault(run.sweep or at, []).append(run)
    return [_one_row(rows) if rows[0].sweep else rows[0] for rows in trials.values()]


def _one_row(rows: list[RunRow]) -> RunRow:
    """Seconds and GPUs are those of all trials that are listed; GPUs of one that is over: as many as a trial had.

    A sweep that was detached goes on as long as the run that drives it, which is no trial.
    """
    driver = next((row for row in rows if row.run == row.sweep), None)
    trials = [row for row in rows if row is not driver]
    if driver is not None and not trials:
        return driver
    living = [trial for trial in trials if not RunState.of(trial.state).is_terminal]
    holding = [trial for trial in living if RunState.of(trial.state).holds_gpu]
    well = [trial for trial in trials if trial.state == RunState.SUCCEEDED.word]
    counts = Counter(word_of(trial) for trial in trials)
    if not living and driver is not None and not RunState.of(driver.state).is_terminal:
        living = [driver]
    newest = (holding or living or well or trials)[0]
    name = trials[0].name.rpartition(" ")[0]
    told = f"{name}: {', '.join(f'{count} {word}' for word, count in counts.items())}"
    return msgspec.structs.replace(
        newest,
        run=newest.sweep,
        name=told,
        title=told,
        gpus=sum(trial.gpus for trial in holding) or newest.gpus or trials[0].gpus,
        submitted_at=min(trial.submitted_at for trial in trials),
        queued_s=min(trial.queued_s for trial in trials),
        held_s=sum(trial.held_s for trial in trials),
        release_ms=None,
        results=[],
        error=None,
        waits_for="",
        detached=driver is not None,
    )
