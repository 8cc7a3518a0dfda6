"""xgboost: its settings; data sets, which pickle refuses, as the file that xgboost itself makes of them, in memory."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from .. import streams
from .adapter import Adapter, LibrarySettings, Reducer, Values

_USUAL = {"verbosity": 1, "use_rmm": False}


def _read(xgboost: Any) -> Values:
    config = xgboost.get_config()
    return {name: config[name] for name in _USUAL if name in config}


class XgboostAdapter(Adapter):
    """Data sets, and what ``set_config`` was told."""

    carried_calls = ("xgboost.set_config",)
    settings = (
        LibrarySettings("xgboost", _read, lambda _: _USUAL, lambda xgboost, *set_: xgboost.set_config(**dict([set_]))),
    )

    def reducer_for(self, kind: type) -> Reducer | None:
        return reduce_data if kind is sys.modules["xgboost"].DMatrix else None


def reduce_data(_pickler: Any, data: Any) -> Any:
    """A data set with its labels, weights and names."""
    file = os.memfd_create("xgboost")
    try:
        data.save_binary(_path(file))
        with open(file, "rb", closefd=False) as reader:
            content = reader.read()
    finally:
        os.close(file)
    return rebuild_xgboost_data, (
        pickle.PickleBuffer(content),
        {key: each for key, each in vars(data).items() if key != "handle"},
    )


@streams.named
def rebuild_xgboost_data(content: Any, attributes: dict[str, Any]) -> Any:
    """The data set of such a file."""
    import xgboost

    file = os.memfd_create("xgboost")
    try:
        with open(file, "wb", closefd=False) as writer:
            writer.write(content)
        data = xgboost.DMatrix(_path(file), silent=True)
    finally:
        os.close(file)
    vars(data).update(attributes)
    return data


def _path(file: int) -> str:
    return f"/proc/self/fd/{file}"


ADAPTER = XgboostAdapter()
