"""Times at which a cell is saved without notice. Pure."""

from __future__ import annotations

from ....settings.built_in import BUILT_IN

#: a cell that nobody has told how often is saved first after so long, and not more often
_FIRST_S: float = BUILT_IN["first_save_s"].default
#: and for at most 1 / so much of its time
_SHARE: int = BUILT_IN["save_share"].default
#: a cell that has run for so long is tried: can it be moved at all?
_TRIAL_S = 1.0
_NEVER = float("inf")


class SavePace:
    """``began_s``: when the attempt began. All times are of one monotonic clock."""

    def __init__(self, began_s: float) -> None:
        self._every_s: float | None = None
        self._last_s = began_s
        self._pause_s = _FIRST_S
        self._trial_s = began_s + _TRIAL_S

    @property
    def due_s(self) -> float:
        """The time at which something is to be done."""
        return min(self._trial_s, self._save_s)

    def is_trial(self, now_s: float) -> bool:
        """Tell if nothing is to be written: the cell is tried, and not saved, at ``now_s``."""
        return now_s < self._save_s

    @property
    def _save_s(self) -> float:
        pause_s = self._pause_s if self._every_s is None else self._every_s
        return self._last_s + pause_s if pause_s else _NEVER

    def set_every(self, every_s: float | None) -> None:
        """The loop that runs now was told so (see :func:`.resumable`)."""
        self._every_s = every_s

    def note_done(self, now_s: float, cost_s: float, *, was_trial: bool) -> None:
        """It was done just now, and has held up the cell for ``cost_s``."""
        self._trial_s = _NEVER  # a save is a trial, too
        if not was_trial:
            self._last_s = now_s
            self._pause_s = max(_FIRST_S, cost_s * _SHARE)
