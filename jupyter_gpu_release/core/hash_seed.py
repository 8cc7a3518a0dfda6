"""Python's seed for the hashes of texts, which the order of sets follows: one for kernels and ranks.

With seeds of their own, an index built from a set in a cell here is wrong in a cell there, without any error.
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Mapping

VARIABLE = "PYTHONHASHSEED"
#: for clusters, and for kernels of a Jupyter server, of which nobody says otherwise: they agree without a word
DEFAULT = "20131"
_PROBE = "a text of which the hash is asked"
_WORD = (1 << 64) - 1
#: rounds for each word and at the end
_SIPHASH = {"siphash13": (1, 3), "siphash24": (2, 4)}


def seed_in(environment: Mapping[str, str]) -> str:
    """The seed of a Python that was started with this environment; empty: a random one."""
    seed = environment.get(VARIABLE, "")
    return seed if seed.isdigit() else ""


def seed_for_kernel(environment: Mapping[str, str], cluster: str) -> dict[str, str]:
    """What a kernel gets so that it agrees with the cluster (``cluster``: its seed, if known); what is set stays."""
    return {} if environment.get(VARIABLE) else {VARIABLE: cluster or DEFAULT}


@functools.cache
def is_seed_of_this_process(seed: str) -> bool:
    """Whether texts have the hashes here that they have in a Python that was started with ``seed``.

    Asked of a hash, since the environment may say something else by now.
    """
    rounds = _SIPHASH.get(sys.hash_info.algorithm)
    if rounds is None or not seed.isdigit():
        return False
    expected = _siphash(_PROBE.encode(), *_keys(int(seed)), *rounds)
    return hash(_PROBE) & _WORD == expected


def _keys(seed: int) -> tuple[int, int]:
    """Python's own way from a seed to the two keys (``lcg_urandom`` in its ``bootstrap_hash.c``)."""
    found, state = bytearray(), seed
    for _ in range(16):
        state = (state * 214013 + 2531011) & 0xFFFFFFFF
        found.append(state >> 16 & 0xFF)
    first, second = struct.unpack("<QQ", bytes(found) if seed else bytes(16))
    return first, second


def _siphash(data: bytes, first: int, second: int, each: int, last: int) -> int:
    state = [first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D]
    state += [first ^ 0x6C7967656E657261, second ^ 0x7465646279746573]
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        state[3] ^= word
        _mix(state, each)
        state[0] ^= word
    state[2] ^= 0xFF
    _mix(state, last)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _mix(state: list[int], rounds: int) -> None:
    a, b, c, d = state
    for _ in range(rounds):
        a, c = a + b & _WORD, c + d & _WORD
        b, d = _turned(b, 13) ^ a, _turned(d, 16) ^ c
        a = _turned(a, 32)
        c, a = c + b & _WORD, a + d & _WORD
        b, d = _turned(b, 17) ^ c, _turned(d, 21) ^ a
        c = _turned(c, 32)
    state[:] = a, b, c, d


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _WORD
