"""Where a sweep's study lies, as others are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from optuna.storages import RDBStorage

from jupyter_gpu_release.functions.kept_study import storage_of


@pytest.mark.parametrize(
    ("url", "noted"),
    [("postgresql://ann@db/studies", "postgresql://ann@db/studies"), ("postgresql://ann:secret@db/studies", "")],
)
def test_an_address_with_a_password_is_noted_nowhere(url: str, noted: str) -> None:
    storage = object.__new__(RDBStorage)
    storage.url = url
    assert storage_of(cast(Any, SimpleNamespace(_storage=storage))) == noted
