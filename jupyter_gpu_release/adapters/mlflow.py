"""MLflow: what ``set_tracking_uri`` and ``set_experiment`` chose (the latter would ask the server again)."""

from __future__ import annotations

import sys
from typing import Any

from .adapter import Adapter, LibrarySettings, Values

#: setting → where it is kept
_PLACES = {
    "tracking_uri": ("mlflow.tracking._tracking_service.utils", "_tracking_uri"),
    "experiment": ("mlflow.tracking.fluent", "_active_experiment_id"),
}


def _read(_module: Any) -> Values:
    places = {name: (sys.modules.get(module), attribute) for name, (module, attribute) in _PLACES.items()}
    return {name: getattr(place, attribute, None) for name, (place, attribute) in places.items() if place is not None}


def _write(_module: Any, name: str, value: Any) -> None:
    module, attribute = _PLACES[name]
    setattr(sys.modules[module], attribute, value)


class MlflowAdapter(Adapter):
    """Settings."""

    carried_calls = ("mlflow.set_tracking_uri", "mlflow.set_experiment")
    settings = (LibrarySettings("mlflow", _read, lambda _: dict.fromkeys(_PLACES), _write, that_count=False),)


ADAPTER = MlflowAdapter()
