"""Variables of the notebook in the options of a magic's line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.utils.text import DollarFormatter

from ...errors import OptionError
from ...options.definitions import Written

#: options whose values may hold braces and dollars of their own
_FREE_TEXT = frozenset({"env", "label", "name", "workdir"})


def expand_variables(written: Written, names: Mapping[str, Any]) -> Written:
    """Put notebook variables into option values, as IPython does: ``--gpus {n}`` or ``--gpus $n``."""
    return {name: [_expand(name, value, names) for value in values] for name, values in written.items()}


def _expand(option: str, value: str, names: Mapping[str, Any]) -> str:
    if "{" not in value and "$" not in value:
        return value
    try:
        return str(DollarFormatter().vformat(value, args=[], kwargs=names))
    except NameError as error:
        if option in _FREE_TEXT:
            return value
        raise OptionError(
            f"--{option} {value}: there is no variable {error.name}",
            hint="define it in a cell before, or write the value",
        ) from None
    except Exception:  # noqa: BLE001 - any expression may stand there; what does not work stays as written
        return value
