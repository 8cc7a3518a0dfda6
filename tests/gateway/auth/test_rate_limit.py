"""Unknown tokens from one address: some are free, then each one costs more, and quiet is forgiven."""

from __future__ import annotations

from jupyter_gpu_release.gateway.auth.rate_limit import TokenRateLimit, UserRateLimit


def test_the_first_ones_cost_nothing() -> None:
    attempts = TokenRateLimit(free=3)
    for _ in range(3):
        attempts.wrong("a", 100.0)
    assert attempts.wait_s("a", 100.0) == 0


def test_then_each_one_doubles_the_wait_up_to_a_minute() -> None:
    attempts, now_s, waits = TokenRateLimit(free=0), 0.0, []
    for _ in range(9):
        attempts.wrong("a", now_s)
        waits.append(attempts.wait_s("a", now_s))
        now_s += waits[-1]
        assert attempts.wait_s("a", now_s) == 0
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_addresses_are_apart_and_quiet_is_forgiven() -> None:
    attempts = TokenRateLimit(free=1)
    attempts.wrong("a", 0.0)
    attempts.wrong("a", 0.0)
    assert attempts.wait_s("a", 0.0) == 1
    assert attempts.wait_s("b", 0.0) == 0
    attempts.wrong("a", 1000.0)
    assert attempts.wait_s("a", 1000.0) == 0


def test_many_addresses_take_no_more_memory_than_so_much() -> None:
    attempts = TokenRateLimit(free=0)
    attempts.wrong("first", 0.0)
    for number in range(10_000):
        attempts.wrong(str(number), 0.0)
    assert attempts.wait_s("first", 0.0) == 0
    assert attempts.wait_s("9999", 0.0) == 1


def test_a_user_has_a_burst_and_then_a_steady_rate_and_others_are_not_held_up() -> None:
    requests = UserRateLimit(per_s=2)
    assert [requests.take("ann", 0.0) for _ in range(20)] == [0.0] * 20
    assert requests.take("ann", 0.0) == 0.5
    assert requests.take("bob", 0.0) == 0
    assert requests.take("ann", 0.5) == 0
    assert requests.take("ann", 0.5) == 0.5
    assert [requests.take("ann", 1000.0) for _ in range(21)][-2:] == [0.0, 0.5], "quiet earns no more than a burst"


def test_what_is_reserved_has_its_turn_later_one_after_the_other() -> None:
    messages = UserRateLimit(per_s=2)
    assert [messages.reserve("ann", 0.0) for _ in range(23)] == [0.0] * 20 + [0.5, 1.0, 1.5]
    assert messages.reserve("bob", 0.0) == 0
    assert messages.reserve("ann", 1.5) == 0.5
    assert messages.reserve("ann", 2.5) == 0
