"""scikit-learn: its settings. Its estimators are plain Python objects."""

from __future__ import annotations

import sys

from .adapter import Adapter, LibrarySettings


class SklearnAdapter(Adapter):
    """Settings, and its threads after a fork."""

    carried_calls = ("sklearn.set_config",)
    settings = (
        LibrarySettings(
            "sklearn",
            lambda sklearn: dict(sklearn.get_config()),
            lambda _: sys.modules["sklearn._config"]._global_config,
            lambda sklearn, name, value: sklearn.set_config(**{name: value}),
        ),
    )

    def compute_a_little(self) -> None:
        import numpy as np
        from sklearn.cluster import KMeans

        points = np.arange(64.0).reshape(32, 2)
        KMeans(n_clusters=2, n_init=1, max_iter=2).fit(points)


ADAPTER = SklearnAdapter()
