"""Prices of runs, from the rates of the queues file."""

from __future__ import annotations

import pytest
from doc_blocks import block

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.scheduling.queues.prices import Prices
from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues

EUR = Prices({"h100": 2.5, "H100 NVL": 3.0, "*": 1.0}, "EUR", 20.0)


@pytest.mark.parametrize(
    ("gpus", "gpu_type", "held_s", "price"),
    [
        (2, "NVIDIA H100 80GB HBM3", 3600, "5 EUR"),
        (1, "NVIDIA H100 NVL", 3600, "3 EUR"),
        (0.5, "NVIDIA A100-SXM4-80GB", 360, "0.05 EUR"),
        (8, "NVIDIA H100 80GB HBM3", 100 * 3600, "2,000 EUR"),
        (0, "", 3600, ""),
    ],
)
def test_what_a_run_has_cost(gpus: float, gpu_type: str, held_s: float, price: str) -> None:
    assert EUR.of_run(gpus, gpu_type, held_s) == price


@pytest.mark.parametrize(
    ("gpus", "gpu_type", "timeout_s", "words"),
    [
        (1, "h100", None, "2.5 EUR an hour"),
        (4, "a100", 7200, "4 EUR an hour, at most 8 EUR"),
        (4, "h100", 7200, "10 EUR an hour, at most 20 EUR"),
        (4, "h100", 7201, "10 EUR an hour, at most 20 EUR: more than 20 EUR, is all of it needed?"),
        (1, "", None, "3 EUR an hour"),
    ],
)
def test_what_a_run_would_cost(gpus: float, gpu_type: str, timeout_s: float | None, words: str) -> None:
    assert EUR.of_ask(gpus, gpu_type, timeout_s) == words


def test_runs_on_several_types_have_one_price() -> None:
    assert EUR.of_runs([("NVIDIA H100 NVL", 3600.0), ("NVIDIA A100-SXM4-80GB", 1800.0)]) == "3.5 EUR"
    assert (EUR.of_runs([]), Prices().of_runs([("h100", 60.0)])) == ("", "")


def test_without_rates_nothing_is_said_of_prices() -> None:
    assert (Prices().of_run(1, "h100", 60), Prices().of_ask(1, "", 60)) == ("", "")
    assert Prices({"h100": 2.5}).of_ask(1, "a100", None) == ""


def test_the_file_names_rates_unit_and_limit() -> None:
    text = block("operate/queues.md", "## Prices").text
    assert parse_queues(text, "q").prices == Prices({"h100": 2.5, "a100": 1.2, "*": 0.5}, "EUR", 50.0)
    with pytest.raises(OptionError, match=r"q, line 2: rates.h100: -1 is no price"):
        parse_queues("schema_version: 1\nrates: {h100: -1}\n", "q")
