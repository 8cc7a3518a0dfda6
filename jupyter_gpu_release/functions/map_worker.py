"""The loop that one worker of ``launch_map`` carries out on its GPUs: call after call in one process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from .. import streams
from ..cell_api import context


@streams.named
def call_items(function: Callable[..., Any], items: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Call the function with each item that is handed to this process."""
    exchange = _exchange()
    for item in exchange.item_numbers():
        try:
            value = function(items[item], **keywords)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own: the item's, not the worker's
            exchange.send_error(item, error)
        else:
            exchange.send_value(item, value)


@streams.named
async def await_items(
    function: Callable[..., Awaitable[Any]], items: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    """As :func:`call_items`, for a function that is awaited."""
    exchange = _exchange()
    for item in exchange.item_numbers():
        try:
            value = await function(items[item], **keywords)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            exchange.send_error(item, error)
        else:
            exchange.send_value(item, value)


def _exchange() -> Any:
    around = context.current_context()
    if around is None or around.items is None:
        raise RuntimeError("a worker of launch_map runs on the cluster only")
    return around.items()
