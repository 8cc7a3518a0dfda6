"""Keras' models, layers and the like: in their own archive, with the classes of the notebook that are in it.

The archive names a class, and Keras looks for it among those that were registered in this process.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterable
from typing import Any

from ... import streams


def reducer_for(kind: type) -> Any:
    """The reducer for a type, None for one that does not travel in an archive."""
    module = sys.modules.get("keras.src.saving.keras_saveable")
    saveable = getattr(module, "KerasSaveable", None)
    if saveable is None or not issubclass(kind, saveable) or kind.__reduce__ is not saveable.__reduce__:
        return None
    return reduce_saveable


def reduce_saveable(_pickler: Any, model: Any) -> Any:
    """Reduce to the archive, and what is not Keras' own in it."""
    unpickle, (archive,) = model.__reduce__()
    registration: Any = sys.modules["keras.src.saving.object_registration"]
    names: dict[Any, str] = registration.GLOBAL_CUSTOM_NAMES
    custom = {registration.get_registered_name(kind): kind for kind in _kinds(model)}
    custom |= {name: thing for thing, name in names.items() if getattr(thing, "__module__", "") == "__main__"}
    is_registered = [name for name, thing in custom.items() if thing in names]
    return rebuild_keras_model, (unpickle.__self__, archive.getvalue(), custom, is_registered)


def _kinds(model: Any) -> Iterable[type]:
    """Types of all that may be in the archive."""
    parts = [model, getattr(model, "optimizer", None), getattr(model, "loss", None)]
    if hasattr(model, "_flatten_layers"):
        parts += model._flatten_layers()
    return {type(part) for part in parts if part is not None and not _is_of_keras(type(part))}


def _is_of_keras(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] in ("keras", "builtins")


@streams.named
def rebuild_keras_model(_kind: type, archive: bytes, custom: dict[str, Any], registered: list[str]) -> Any:
    """The model; ``custom``: what Keras calls the classes and functions that are not its own."""
    saving: Any = importlib.import_module("keras.src.saving.saving_lib")
    registration: Any = importlib.import_module("keras.src.saving.object_registration")
    for name in registered:
        registration.GLOBAL_CUSTOM_OBJECTS[name] = custom[name]
        registration.GLOBAL_CUSTOM_NAMES[custom[name]] = name
    return saving._load_model_from_fileobj(io.BytesIO(archive), custom_objects=custom, compile=True, safe_mode=False)
