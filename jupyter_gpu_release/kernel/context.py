"""Questions that parts of the kernel side may ask of the notebook they belong to."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..client.config import GpuRelease
    from ..options.definitions import Written
    from ..options.run_options import RunOptions
    from .connection import GatewayConnection
    from .namespace.detached import DetachedResults
    from .namespace.namespace import Namespace
    from .namespace.post_mortem import FailedCell
    from .namespace.published import PublishedValues


class KernelContext(Protocol):
    """The notebook as its parts see it: :class:`.Notebook` is one.

    Used on the kernel's main thread, except where a member says otherwise.
    """

    shell: Any
    connection: GatewayConnection
    published: PublishedValues
    detached: DetachedResults
    last_failure: FailedCell | None

    @property
    def names(self) -> Namespace:
        """The notebook's names."""

    @property
    def settings(self) -> GpuRelease:
        """The configuration."""

    def options(self, written: Written, *, without: Collection[str] = ()) -> RunOptions:
        """The options of one cell or function, over this notebook's defaults."""
