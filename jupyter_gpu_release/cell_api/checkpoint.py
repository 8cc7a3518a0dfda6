"""``checkpoint`` and ``restore``: how functions and scripts are preempted and resumed."""

from __future__ import annotations

from typing import Any

from .context import current_context
from .resumable import save_interval_s


def checkpoint(state: Any, every: str | float | None = None) -> None:
    """Let a restartable run be preempted here; when it is resumed, :func:`restore` returns ``state``.

    For functions, for scripts, and for cells whose loop is inside a function::

        def train(data):
            model, start = make_model(), 0
            if (state := gpu_release.restore()) is not None:
                model.load_state_dict(state["model"])
                start = state["epoch"] + 1
            for epoch in range(start, 100):
                train_one_epoch(model, data)
                gpu_release.checkpoint({"model": model.state_dict(), "epoch": epoch})

        gpu_release.launch(train, data, restartable=True)

    Call it as often as you like, and at the end of each round rather than in its middle: it takes microseconds, unless
    the run is preempted, or is to be saved.
    In a run that is not restartable, in the kernel and in a plain script it does nothing.

    Parameters
    ----------
    state : object
        What the code needs to go on from here. It is copied when it is saved, so it may change afterwards.
    every : float or str, optional
        Seconds between two saves without notice, or as options are written: ``"10m"``. ``0``: only when the run is
        preempted. Not given: it saves by itself, for at most 2 % of the time.

    Raises
    ------
    OptionError
        ``every`` is no duration.
    """
    every_s = save_interval_s(every, "checkpoint")
    around = current_context()
    if around is not None:
        around.checkpoint(state, every_s)


def restore() -> Any:
    """Return what the run has saved with :func:`checkpoint`; None the first time, and wherever nothing is saved.

    A run that goes on from a checkpoint begins at its first statement, with what was sent to it. In its run folder are
    the files that it had at the checkpoint. Random numbers go on from here as they did after the checkpoint: so call it
    right before the loop, after the model was made.

    In a run that calls it several times each call has its own checkpoints: those that follow it. Only the latest
    checkpoint of the run is kept.

    Returns
    -------
    object
        The ``state`` of the latest :func:`checkpoint` that was saved, or None.
    """
    around = current_context()
    return around.restore() if around is not None else None
