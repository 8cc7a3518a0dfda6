"""scikit-learn: its settings. Its estimators are plain Python objects."""

from __future__ import annotations

import sys

from .adapter import Adapter, LibrarySettings


class SklearnAdapter(Adapter):
    """Settings."""

    settings = (
        LibrarySettings(
            "sklearn",
            lambda sklearn: dict(sklearn.get_config()),
            lambda _: sys.modules["sklearn._config"]._global_config,
            lambda sklearn, name, value: sklearn.set_config(**{name: value}),
        ),
    )


ADAPTER = SklearnAdapter()
