"""Pages of output: text that belongs together, pictures in their place, never more than an assistant can read."""

from __future__ import annotations

from jupyter_gpu_release.assistant.output_page import Picture, page_of, pictures_of
from jupyter_gpu_release.protocol.events import Event


def _text(n: int, text: str, name: str = "stdout") -> Event:
    return Event(n, 0.0, "stream", {"name": name, "text": text})


def _picture(n: int, data: str = "iVBO") -> Event:
    return Event(n, 0.0, "display", {"data": {"image/png": data, "text/plain": "<Figure>"}, "metadata": {}})


def test_text_around_a_picture_stays_in_its_order() -> None:
    page = page_of([_text(3, "one\n"), _text(4, "two\n"), _picture(5), _text(6, "three\n")], 2)
    assert page.parts == ["one\ntwo\n", Picture("iVBO"), "three\n"]
    assert (page.last, page.more) == (6, False)


def test_a_progress_bar_is_its_last_state() -> None:
    page = page_of([_text(n, f"\r{n} %") for n in range(1, 100)] + [_text(100, "\rdone\n")], 0)
    assert page.parts == ["done\n"]


def test_a_page_ends_before_it_is_too_long_and_the_next_begins_there() -> None:
    events = [_text(n, f"{n} {'x' * 9_000}\n") for n in range(1, 6)]
    first = page_of(events, 0)
    assert (first.last, first.more) == (2, True)
    second = page_of(events[2:], first.last)
    assert str(second.parts[0]).startswith("3 ")


def test_an_event_longer_than_a_page_is_cut_and_not_met_again() -> None:
    page = page_of([_text(1, "x" * 100_000), _text(2, "after")], 0)
    assert (len(page.parts[0]) if isinstance(page.parts[0], str) else 0, page.last, page.more) == (20_000, 1, True)


def test_five_pictures_are_more_than_a_page() -> None:
    page = page_of([_picture(n) for n in range(1, 6)], 0)
    assert (len(page.parts), page.last, page.more) == (4, 4, True)


def test_without_events_the_next_page_begins_where_this_did() -> None:
    page = page_of([], 7)
    assert (page.parts, page.last, page.more) == ([], 7, False)


def test_colours_are_left_out_and_pictures_are_found() -> None:
    assert page_of([_text(1, "\x1b[31mred\x1b[0m\n")], 0).parts == ["red\n"]
    assert pictures_of([_text(1, "a"), _picture(2), Event(3, 0.0, "display", {"data": {"text/plain": "b"}})]) == [
        Picture("iVBO")
    ]


def test_a_page_is_filled_to_its_last_letter() -> None:
    half = [_text(1, "x" * 10_000), _text(2, "y" * 10_000), _text(3, "z")]
    assert (page_of(half, 0).last, page_of(half, 0).more) == (2, True)
    assert page_of([_text(1, "x" * 10_000), _text(2, "y" * 10_001)], 0).last == 1
