"""What is left of recorded output when it is shown again."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from tqdm import tqdm

from jupyter_gpu_release.presentation import terminal
from jupyter_gpu_release.presentation.terminal import OutputCollapser
from jupyter_gpu_release.protocol.events import Event


def fold(*pairs: tuple[str, dict[str, Any]], at_once: int = 0) -> list[tuple[str, Any]]:
    """Kinds with their text (or data), events fed all together or ``at_once`` at a time."""
    events = [Event(n, 0.0, kind, data) for n, (kind, data) in enumerate(pairs, start=1)]
    folding, out = OutputCollapser(), []
    step = at_once or len(events) or 1
    for at in range(0, len(events), step):
        out += folding.feed(events[at : at + step])
    out += folding.rest()
    return [(event.kind, event.data.get("text", event.data)) for event in out]


def say(text: str, name: str = "stdout") -> tuple[str, dict[str, Any]]:
    return "stream", {"name": name, "text": text}


def show(what: str) -> tuple[str, dict[str, Any]]:
    return "display", {"data": {"text/plain": what}}


def clear(*, wait: bool) -> tuple[str, dict[str, Any]]:
    return "clear_output", {"wait": wait}


def text_of(found: list[tuple[str, Any]]) -> str:
    return "".join(text for kind, text in found if kind == "stream")


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("plain\nlines\nand a half", "plain\nlines\nand a half"),
        ("10%\r20%\r30%", "30%"),
        ("a long one\rshort", "shortg one"),
        ("a long one\r\x1b[Kshort\nnext\n", "short\nnext\n"),
        ("100%\b\b\b\b42% ", "42% "),
        ("gone away\x1b[2K\rleft", "left"),
        ("\r1\n\r2\n\r3\x1b[2A\r9", "9\n2\n3\x1b[2A"),
        ("10%\r100%\ndone\n", "100%\ndone\n"),
        ("\x1b[31mred\x1b[0m and more\rnow", "now"),
        ("kept \x1b[1mbold\x1b[0m\n", "kept \x1b[1mbold\x1b[0m\n"),
        ("\r\nwindows\r\nends\r\n", "\nwindows\nends\n"),
    ],
)
@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_text(written: str, left: str, pieces: int) -> None:
    parts = [written[at : at + pieces] for at in range(0, len(written), pieces)] if pieces > 3 else [written]
    assert text_of(fold(*map(say, parts))) == left


def bars(*, nested: bool) -> str:
    file = io.StringIO()
    file.isatty = lambda: True  # type: ignore[method-assign]
    for _ in tqdm(range(30), file=file, mininterval=0, desc="outer", ascii=True, ncols=60):
        if nested:
            for _ in tqdm(range(20), file=file, mininterval=0, desc="inner", leave=False, ascii=True, ncols=60):
                pass
    return file.getvalue()


def test_a_bar_of_two_hours_is_one_line() -> None:
    left = text_of(fold(*(say(part, "stderr") for part in bars(nested=False).splitlines(keepends=True))))
    assert len(left.splitlines()) == 1
    assert "30/30" in left


def test_nested_bars_leave_the_outer_one() -> None:
    written = bars(nested=True)
    assert len(written) > 20_000
    left = text_of(fold(*(say(written[at : at + 50], "stderr") for at in range(0, len(written), 50))))
    assert [line for line in left.split("\n") if "30/30" in line]
    assert len(left) < 400


def test_lines_beside_a_bar_keep_their_order_and_the_bar_is_one() -> None:
    pairs = []
    for epoch in range(3):
        pairs += [say(f"\r{epoch}0%", "stderr"), say(f"epoch {epoch}\n")]
    found = fold(*pairs, say("\r100%\n", "stderr"), at_once=1)
    assert text_of(found).count("epoch") == 3
    assert text_of(found).endswith("100%\n")
    assert text_of(found).count("%") == 1


def test_behind_a_bar_not_everything_is_held_back() -> None:
    printed = "".join(f"line {number}\n" for number in range(100))
    kind, data = say(f"10%\r100%\n{printed}")
    found = OutputCollapser().feed([Event(1, 0.0, kind, data)])
    assert text_of([(event.kind, event.data["text"]) for event in found]) == f"100%\n{printed}"


@pytest.mark.parametrize("at_once", [1, 2, 0])
def test_a_bar_for_each_epoch_stands_where_it_stood(at_once: int) -> None:
    pairs = []
    for epoch in range(3):
        bar = (say(f"\r{done}0%", "stderr") for done in range(11))
        pairs += [say(f"epoch {epoch}\n"), *bar, say("\n", "stderr"), say(f"loss {epoch}\n")]
    found = text_of(fold(*pairs, at_once=at_once))
    assert found.split("\n") == [*(line for n in range(3) for line in (f"epoch {n}", "100%", f"loss {n}")), ""]


@pytest.mark.parametrize("at_once", [1, 2, 0])
def test_lines_of_two_streams_keep_their_order(at_once: int) -> None:
    pairs = [say(f"{n}\n", name) for n in range(4) for name in ("stdout", "stderr")]
    assert text_of(fold(*pairs, at_once=at_once)) == "".join(text["text"] for _, text in pairs)


def test_a_bar_above_another_goes_on_when_something_is_printed() -> None:
    upper = say("\r10%", "stderr"), say("\n\r5%\x1b[A", "stderr")
    found = fold(*upper, say("line\n"), say("\r100%", "stderr"), say("\n\r100%\n", "stderr"))
    assert text_of(found) == "line\n100%\n100%\n"


def test_a_half_line_stands_before_the_display() -> None:
    assert fold(say("loss: "), show("figure"), say("more\n")) == [
        ("stream", "loss: "),
        ("display", show("figure")[1]),
        ("stream", "more\n"),
    ]


def test_of_an_updated_display_the_last_version_stays() -> None:
    def version(n: int, name: str = "bar") -> tuple[str, dict[str, Any]]:
        return "update_display", {"data": {"text/plain": str(n)}, "transient": {"display_id": name}}

    found = fold(show("0"), *(version(n) for n in range(500)), version(7, "other"), at_once=10)
    assert [data["data"]["text/plain"] for _, data in found] == ["0", "499", "7"]


def test_only_the_latest_displays_that_were_updated_are_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_MOST_HELD", 2)

    def update(name: str) -> Event:
        return Event(1, 0.0, "update_display", {"transient": {"display_id": name}})

    folding = OutputCollapser()
    assert folding.feed(map(update, "abab")) == []
    assert folding.feed(map(update, "ac")) == [update("b")], "the one that has been left alone for longest"
    assert folding.rest() == [update("a"), update("c")]


def test_of_a_widgets_updates_one_is_left_with_all_that_they_said() -> None:
    def update(state: dict[str, int]) -> tuple[str, dict[str, Any]]:
        return "comm", {
            "msg_type": "comm_msg",
            "content": {"comm_id": "c", "data": {"method": "update", "state": state}},
        }

    opened = ("comm", {"msg_type": "comm_open", "content": {"comm_id": "c", "data": {"state": {}}}})
    found = fold(opened, *(update({"value": n}) for n in range(50)), update({"max": 9}), at_once=7)
    assert len(found) == 2
    binary = ("comm", update({"value": 1})[1] | {"buffers": [b"x"]})
    assert len(fold(opened, binary, binary)) == 3
    assert found[1][1]["content"]["data"]["state"] == {"value": 49, "max": 9}


def test_what_was_cleared_is_not_shown_again() -> None:
    pairs = [say("before\n")]
    for n in range(100):
        pairs += [clear(wait=True), show(f"plot {n}"), say(f"line {n}\n")]
    found = fold(*pairs, at_once=3)
    assert found == [
        ("stream", "before\n"),
        ("clear_output", {"wait": False}),
        ("display", show("plot 99")[1]),
        ("stream", "line 99\n"),
    ]


def test_a_clear_that_waits_for_output_which_never_comes_takes_nothing_away() -> None:
    found = fold(clear(wait=False), show("last"), clear(wait=True))
    assert [kind for kind, _ in found] == ["clear_output", "display", "clear_output"]
    assert found[-1][1] == {"wait": True}


def test_much_output_after_a_clear_is_not_held_back() -> None:
    folding = OutputCollapser()
    folding.feed([Event(1, 0.0, "clear_output", {"wait": False})])
    given = [folding.feed([Event(n, 0.0, *say("x" * (1 << 20) + "\n"))]) for n in range(2, 20)]
    kinds = [event.kind for each in given for event in each]
    assert kinds[:10] == ["clear_output", *["stream"] * 9], "and nothing of it is lost"


def test_text_is_still_that_of_its_process() -> None:
    said = {"name": "stdout", "text": "a\n", "rank": 1, "who": "ps 0"}
    (event,) = OutputCollapser().feed([Event(1, 0.0, "stream", said)])
    assert event.data == said


def test_published_values_are_not_shown() -> None:
    assert fold(("published", {"name": "loss"})) == []


def test_however_it_is_cut_the_same_is_left() -> None:
    chooser = random.Random(5)
    letters = ["a", "bc", "\r", "\n", "\b", "\x1b[A", "\x1b[K", "long text"]
    for _ in range(200):
        written = "".join(chooser.choice(letters) for _ in range(60))
        whole = text_of(fold(say(written)))
        parts, rest = [], written
        while rest:
            size = chooser.randint(1, 9)
            parts.append(rest[:size])
            rest = rest[size:]
        assert text_of(fold(*map(say, parts), at_once=chooser.randint(1, 5))) == whole
