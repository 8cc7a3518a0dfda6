"""pydantic: a generic model with its parameters (``Box[int]``) is the one that pydantic keeps for them."""

from __future__ import annotations

import operator
from typing import Any

from .adapter import Adapter, Reducer


class PydanticAdapter(Adapter):
    """Models are classes of the notebook; those with parameters are made of them."""

    def reducer_for(self, kind: type) -> Reducer | None:
        return _reduce_model if issubclass(kind, type) else None


def _reduce_model(_pickler: Any, model: Any) -> Any:
    """Look a model with parameters up in the one without; another is a class as any other."""
    made_of = vars(model).get("__pydantic_generic_metadata__") or {}
    origin, parameters = made_of.get("origin"), made_of.get("args") or ()
    if origin is None or not parameters:
        return None
    return operator.getitem, (origin, parameters if len(parameters) > 1 else parameters[0])


ADAPTER = PydanticAdapter()
