"""Reading what a gateway answers over HTTP: the record, or the error that the gateway refuses with."""

from __future__ import annotations

from typing import TypeVar

import httpx
import msgspec

from ..errors import GatewayUnavailableError, GpuReleaseError, from_code
from .unreachable import not_a_gateway

T = TypeVar("T")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def read_answer(url: str, path: str, response: httpx.Response, kind: type[T], *, configured: bool) -> T:
    """``response`` as a record of ``kind``.

    Raises what the gateway refused with, or :class:`GatewayUnavailableError` for an answer that no gateway gives.
    """
    if response.status_code >= 400:
        raise refusal(url, response, configured=configured)
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise GatewayUnavailableError(
            f"{url}{path} answered with something else than a gateway does: {error}",
            mend="is the address right, and the gateway of this version?",
        ) from error


def refusal(url: str, response: httpx.Response, *, configured: bool) -> GpuReleaseError:
    """The error in an answer of status 400 and above."""
    try:
        facts = msgspec.json.decode(response.content)["error"]
        return from_code(facts["code"], facts["message"], facts.get("mend", ""))
    except (msgspec.DecodeError, KeyError, TypeError):
        return not_a_gateway(url, response.status_code, configured=configured)


def safe_path(name: str) -> str:
    """``name`` (an id from outside) with nothing in it that could lead elsewhere in a URL."""
    return "".join(letter for letter in name if letter.isalnum() or letter in "-_.").strip(".") or "-"
