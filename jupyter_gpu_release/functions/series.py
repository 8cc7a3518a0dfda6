"""Which calls may follow each other in one process: those of the same function, asked for in the same way."""

from __future__ import annotations

import secrets
import threading
import types
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from ..core.choices import RunOptions


class Series:
    """Words for functions, by identity: a function that is defined anew is another one."""

    def __init__(self) -> None:
        self._words: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def word(self, function: Any, options: RunOptions, *, stream: bool) -> str:
        """The word of a call; empty where each call has a process of its own.

        That is so for gangs, CPU stages (their cores belong to a process), ``fresh``, and what may outlast this
        process or its GPU time (``detach``, ``keep``).
        """
        ask = options.ask
        alone = ask.ranks > 1 or ask.ps or ask.evaluator or not ask.gpus or ask.cpus
        if alone or options.fresh or options.detach or options.keep_s or not isinstance(function, types.FunctionType):
            return ""
        with self._lock:
            word = self._words.setdefault(function, secrets.token_hex(6))
        return f"{word}-{'shown' if stream else 'quiet'}"
