"""tqdm: progress bars, which hold locks, streams and the cell's display."""

from __future__ import annotations

import pickle
from typing import Any

from .adapter import Adapter, Reducer, refusing


@refusing
def refuse_progress_bar(_pickler: Any, _bar: Any) -> Any:
    """Refuse one."""
    raise pickle.PicklingError("a progress bar stays where it runs")


class TqdmAdapter(Adapter):
    """Progress bars."""

    def reducer_for(self, kind: type) -> Reducer | None:
        return refuse_progress_bar if any(base.__name__ == "tqdm" for base in kind.__mro__) else None


ADAPTER = TqdmAdapter()
