"""Prices of GPU-hours, in the unit that the team counts in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .gpu_types import key


@dataclass(frozen=True)
class Prices:
    """``rates``: GPU type (or ``*``) → price of a GPU-hour. ``warn_above``: the price of a run that is worth a word."""

    rates: Mapping[str, float] = field(default_factory=dict)
    unit: str = ""
    warn_above: float | None = None

    def of_hour(self, gpu_type: str) -> float:
        """The price of an hour of one GPU; of a type that is not named yet, the dearest."""
        named = {key(kind): rate for kind, rate in self.rates.items() if kind != "*"}
        among = [kind for kind in sorted(named, key=len, reverse=True) if kind in key(gpu_type)]
        rest = max(self.rates.values(), default=0.0) if not gpu_type else self.rates.get("*", 0.0)
        return named[among[0]] if among else rest

    def of_run(self, gpus: float, gpu_type: str, held_s: float) -> str:
        """The price of GPUs that were held: ``1.3 EUR``; empty where there is none."""
        return self.of_runs([(gpu_type, gpus * held_s)])

    def of_runs(self, held: Iterable[tuple[str, float]]) -> str:
        """The price of GPU-seconds, each with their type; empty where there is none."""
        rated = [(self.of_hour(gpu_type), gpu_s) for gpu_type, gpu_s in held if gpu_s]
        return self._words(sum(rate * gpu_s / 3600 for rate, gpu_s in rated)) if any(rate for rate, _ in rated) else ""

    def of_ask(self, gpus: float, gpu_type: str, timeout_s: float | None) -> str:
        """The price of a run that is not sent yet: ``2.5 EUR an hour, at most 5 EUR``; empty where there is none."""
        hourly = gpus * self.of_hour(gpu_type)
        if not hourly:
            return ""
        words = f"{self._words(hourly)} an hour"
        if timeout_s is None:
            return words
        return f"{words}, at most {self._weighed(hourly * timeout_s / 3600)}"

    def of_plan(self, gpu_type: str, gpu_s: float) -> str:
        """The price of GPU-seconds that are not spent yet, with the warning; empty where there is none."""
        price = self.of_hour(gpu_type) * gpu_s / 3600
        return self._weighed(price) if price else ""

    def _weighed(self, price: float) -> str:
        is_dear = self.warn_above is not None and price > self.warn_above
        warning = f": more than {self._words(self.warn_above or 0)}, is all of it needed?" if is_dear else ""
        return f"{self._words(price)}{warning}"

    def _words(self, price: float) -> str:
        return f"{price:.3g} {self.unit}".rstrip() if price < 999.5 else f"{price:,.0f} {self.unit}".rstrip()
