"""``%gpu_attach``: a run of another kernel, of yesterday, of this one: its output again, then live, then its names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..client.failures import interrupted
from ..client.results import is_usable
from ..core.messages import RunView
from ..errors import GpuReleaseError, NoSuchRunError
from .cell_output import CellOutput
from .follow import Following, Manner
from .interrupts import Interrupts
from .returned import Homecoming, Returned

if TYPE_CHECKING:
    from .notebook import Notebook


def attach_to(notebook: Notebook, run: str) -> None:
    """Replay the run in the cell that runs now, follow it to its end, bind its names; raises what it raised.

    An interrupt ends the following, never the run.
    """
    own = notebook.background.find(run)
    session = notebook.link.session(notebook.settings)
    with Interrupts() as interrupts:
        feed = session.follow(run, adopt=True)
        manner = Manner(leaves=True, replays=True, suffix=f" · run {run}")
        on_events = partial(notebook.published.take, session, run)
        following = Following(CellOutput(notebook.shell), session, feed, interrupts, manner, on_events)
        try:
            view = following.until_usable()
        except GpuReleaseError as error:
            following.close_line(error.message)
            raise
        if not is_usable(view):
            text = _left(view, is_own=own is not None)
            following.close_line(text)
            raise interrupted(text)
        if own is not None and not own.is_settled:  # its names are bound by the one that awaits them
            own.is_done.wait()
            notebook.background.settle_done()
            if own.returned is not None:
                own.is_reported = True
                return _show(own.returned, following, view)
        if session.welcome is not None and view.user != session.welcome.user:
            following.close_line(f"run {run} is {view.state}; its results belong to {view.user}")
            raise NoSuchRunError(f"run {run} belongs to {view.user}: its names stay there")
        coming = Homecoming(notebook, session)
        coming.in_turn = False
        return _show(coming.take_in(view), following, view)


def _show(returned: Returned, following: Following, view: RunView) -> None:
    returned.show(following, view)
    if returned.failure is not None:
        raise returned.failure


def _left(view: RunView, *, is_own: bool) -> str:
    text = f"interrupted; run {view.run} goes on"
    if is_own or view.detached:
        return f"{text} (%gpu_attach {view.run} brings it back)"
    return f"{text}, as long as the kernel that it belongs to (%gpu_detach lets it go on without)"
