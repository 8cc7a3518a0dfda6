"""GPU time of late: it fades, whoever used it and whenever it is asked for."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.scheduling.queues.usage import FadingUse, by_queue


def test_what_was_used_counts_half_after_a_half_life() -> None:
    use = FadingUse(100.0, 1000.0)
    use.add("q", "ann", 8.0, 1000.0)
    use.add("q", "bob", 8.0, 900.0)
    use.add("q", "ann", 1.0, 1200.0)
    assert use.by_user(1200.0) == pytest.approx({("q", "ann"): 3.0, ("q", "bob"): 1.0})
    slower = use.with_half_life(1000.0, 1200.0)
    assert slower.by_user(2200.0) == pytest.approx({("q", "ann"): 1.5, ("q", "bob"): 0.5})


def test_use_fades_on_for_as_long_as_a_gateway_lives() -> None:
    use, life_s = FadingUse(3600.0, 0.0), 3600.0 * 3000  # by then a number that only grows would be too large
    use.add("q", "ann", 8.0, 0.0)
    use.add("q", "bob", 8.0, life_s)
    assert use.by_user(life_s) == pytest.approx({("q", "ann"): 0.0, ("q", "bob"): 8.0})
    assert use.by_user(-life_s)["q", "bob"] == pytest.approx(8.0)  # a clock that was set back
    assert use.with_half_life(60.0, life_s).by_user(life_s)["q", "bob"] == pytest.approx(8.0)


def test_queues_have_the_sum_of_what_is_below_them() -> None:
    paths = {"a": ("a", "top"), "b": ("b", "top"), "top": ("top",)}
    used = {("a", "ann"): 1.0, ("a", "bob"): 2.0, ("b", "ann"): 4.0, ("gone", "ann"): 8.0}
    assert by_queue(used, paths) == {"a": 3.0, "b": 4.0, "top": 7.0}
