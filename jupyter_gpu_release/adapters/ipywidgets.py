"""ipywidgets: a widget is its state, and the number of the page's model, with which a rank's copy goes on talking."""

from __future__ import annotations

import copyreg
import sys
from typing import Any

from .. import streams
from .adapter import Adapter, Reducer
from .users_code import is_of_the_user

_COMM = "comm"
_TARGET = "jupyter.widget"


def reduce_widget(pickler: Any, widget: Any) -> Any:
    """Its traits and attributes; traitlets itself leaves those out that observe it."""
    state = widget.__getstate__()
    values = state["_trait_values"] = dict(state["_trait_values"])
    comm = values.pop(_COMM, None)
    if any(is_of_the_user(each) for each in _observers(widget)):
        pickler.remarks_on_parts.append((widget, "without the functions that observe it"))
    number = None if comm is None else comm.comm_id
    return copyreg.__newobj__, (type(widget),), (state, number), None, None, fill_widget  # type: ignore[attr-defined]


def _observers(widget: Any) -> list[Any]:
    return [each for kinds in widget._trait_notifiers.values() for found in kinds.values() for each in found]


@streams.named
def fill_widget(widget: Any, state: tuple[dict[str, Any], str | None]) -> None:
    """Fill a widget; it speaks for the page's model, unless this process has a widget that does."""
    attributes, number = state
    widget.__setstate__(attributes)
    here = _widgets().get(number)
    if number is not None and not isinstance(here, _class_of_widgets()):
        comm = sys.modules["comm"].create_comm(comm_id=number, target_name=_TARGET, primary=False)
        sys.modules["comm"].get_comm_manager().register_comm(comm)
        widget.comm = comm


def _widgets() -> dict[Any, Any]:
    return sys.modules["ipywidgets.widgets.widget"]._instances  # type: ignore[no-any-return]


def _class_of_widgets() -> Any:
    return sys.modules["ipywidgets"].Widget


class IpywidgetsAdapter(Adapter):
    """Widgets, and the traits of which they are made."""

    def reducer_for(self, kind: type) -> Reducer | None:
        return reduce_widget if issubclass(kind, _class_of_widgets()) else None

    def update_in_place(self, old: Any, new: Any) -> bool | None:
        """The page knows already: the rank's widget has told it."""
        if not isinstance(old, _class_of_widgets()):
            return None
        comm = old._trait_values.get(_COMM)
        old.__dict__ |= {name: value for name, value in vars(new).items() if not name.startswith("_trait_")}
        old._trait_values |= new._trait_values | {_COMM: comm}
        return True


ADAPTER = IpywidgetsAdapter()
