"""Rebuilds a view on an array's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import streams


@streams.named
def rebuild_view(root: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    """A view on ``root``'s memory."""
    if root.nbytes == 0:
        return np.empty(shape, dtype)
    root = np.ndarray.view(root, np.ndarray)
    memory = (root if root.flags.c_contiguous else root.T).reshape(-1).view("u1")
    view: Any = np.ndarray(shape, dtype, buffer=memory, offset=offset, strides=strides)
    if not writeable:
        view.flags.writeable = False
    return view
