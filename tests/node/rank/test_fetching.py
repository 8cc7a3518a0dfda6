"""Names that were held back are fetched when the cell asks for them, whatever way it asks."""

from __future__ import annotations

import threading
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from node_bed import Node, Run, is_running

from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.fetch import FETCH, Answer, Fetch
from jupyter_gpu_release.protocol.node import RunAsks
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust

_HELD = {"big": 80 << 20, "other": 90 << 20}


class Kernel:
    """Answers the questions of a run with ``values``, or as they say."""

    def __init__(self, run: Run, values: dict[str, Any]) -> None:
        self.run = run
        self.values = values
        self.asked: list[tuple[str, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over.is_set():
            for question in questions(self.run)[len(self.asked) :]:
                self.asked.append((question.name, question.rank))
                self.answer(question.rank, self._made(question))
            with self.run.changed:
                self.run.changed.wait(0.1)

    def _made(self, question: Fetch) -> Answer:
        if isinstance(given := self.values[question.name], Answer):
            return given
        dump = codec.dump({question.name: self.values[question.name]}, NamespaceInfo({}, at_home=True))
        graph = Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers])
        return Answer(question.ask, graph, first=1000)

    def answer(self, rank: int, answer: Answer) -> None:
        self.run.node.loop.call_soon_threadsafe(self.run.on_node.gang.answer_rank, rank, encode(answer))

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def questions(run: Run) -> list[Fetch]:
    return [msgspec.convert(event.data, Fetch) for event in run.events if event.kind == FETCH]


@contextmanager
def answering(run: Run, **values: Any) -> Iterator[Kernel]:
    kernel = Kernel(run, values)
    try:
        yield kernel
    finally:
        kernel.close()


def start(node: Node, source: str, **options: Any) -> Run:
    return node.start(source, held=_HELD, **options)


@pytest.mark.parametrize(
    "expression",
    [
        "big",
        "(lambda: big)()",
        "globals()['b' + 'ig']",
        "globals().get('b' + 'ig', 'nothing')",
        "vars()['big']",
        "locals()['big']",
        "eval('big')",
        "eval('big', globals())",
        "[big for _ in '1'][0]",
        "type('C', (), {'x': big}).x",
        "get_ipython().user_ns['big']",
        "__import__('sys').modules['__main__'].big",
        "getattr(__import__('__main__'), 'big')",
        "vars(__import__('__main__'))['big']",
        "__import__('sys')._getframe().f_globals.copy()['big']",
        "dict(globals())['big']",
        "{**globals()}['big']",
        "dict(globals().items())['big']",
        "globals().setdefault('big', 0)",
        "__import__('concurrent.futures', fromlist=['x']).ThreadPoolExecutor().submit(lambda: big).result()",
    ],
)
def test_asked_for_in_any_way_it_comes(node: Node, expression: str) -> None:
    run = start(node, f"found = {expression}\nprint(found, found is big)")
    with answering(run, big=[1, 2], other=3) as kernel:
        assert run.wait().status == "ok", run.outcome.error
    assert run.text() == "[1, 2] True\n"
    assert set(kernel.asked) >= {("big", 0)}
    assert len(kernel.asked) == len(set(kernel.asked)), "once each"
    assert [message.rank for message in run.messages if isinstance(message, RunAsks)] == [0] * len(kernel.asked)


def test_a_module_that_is_imported_when_it_is_used_asks_for_nothing(node: Node) -> None:
    dump = codec.dump({}, NamespaceInfo({}, at_home=True), rest=lambda: {"later": wave}, rest_bytes=1 << 20)
    inputs = Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers])
    run = start(node, "print(later.__name__, later.Error.__name__)", inputs=inputs)
    with answering(run) as kernel:
        assert run.wait().status == "ok", run.outcome.error
    assert run.text() == "wave Error\n"
    assert kernel.asked == []


def test_what_only_looks_asks_for_nothing_and_a_plain_cell_would_see_the_same(node: Node) -> None:
    run = start(
        node,
        "print('big' in globals(), 'big' in dir(), 'big' in list(vars()), 'none' in globals(), 'len' in globals())\n"
        "print(globals().get('none'), globals().get('len'), isinstance(globals(), dict), len([1]), __name__)\n"
        "try:\n    none\nexcept NameError as error:\n    print(error)\n"
        "try:\n    globals()['none']\nexcept KeyError as error:\n    print('KeyError', error)\n"
        "try:\n    import __main__\n    __main__.none\nexcept AttributeError as error:\n    print(error)\n"
        "import builtins\nbefore, builtins.oct = oct, lambda x: 'mine'\nprint(oct(1))\nbuiltins.oct = before\n"
        "print(oct(1))\nbuiltins.extra = 5\nprint(extra)\ndel builtins.extra\nprint('extra' in dir(builtins))\n"
        "__main__.new = 1\nprint(new)\ndel __main__.new\nprint('new' in globals())\n"
        "big = 'own'\nprint(big, globals()['big'])\ndel big\nprint('big' in globals())\ndel other",
    )
    with answering(run) as kernel:
        assert run.wait().status == "ok", run.outcome.error
    assert run.text() == (
        "True True True False False\nNone None True 1 __main__\nname 'none' is not defined\nKeyError 'none'\n"
        "module '__main__' has no attribute 'none'\nmine\n0o1\n5\nFalse\n1\nFalse\nown own\nFalse\n"
    )
    assert kernel.asked == []
    values = run.outcome.values
    assert values is not None
    home = codec.load(
        values.stream,
        [bytearray(buffer) for buffer in values.buffers],
        NamespaceInfo({}, at_home=True),
        trust=Trust.OWN,
    )
    assert set(home.facts["deleted"]) == {"big", "other"}
    assert "big" not in home.values


def test_what_is_fetched_is_an_input(node: Node) -> None:
    """What it changes in place comes home under the name, with the parts by their numbers; the rest does not."""
    inner = {"deep": 1}
    run = start(node, "big[0]['deep'] = 2\nsame = other\ndel other")
    with answering(run, big=[inner], other={"o": [0]}):
        assert run.wait().status == "ok", run.outcome.error
    values = run.outcome.values
    assert values is not None
    home = codec.load(
        values.stream,
        [bytearray(buffer) for buffer in values.buffers],
        NamespaceInfo({}, at_home=True),
        trust=Trust.OWN,
    )
    assert home.values["big"] == [{"deep": 2}]
    assert home.facts["inplace"] == ["big"]
    assert home.facts["deleted"] == ["other"]
    numbers, things = home.facts["same"]
    assert {number: thing for number, thing in zip(numbers, things, strict=True) if number >= 1000}
    assert any(thing == {"deep": 2} for thing in things)
    notes = run.outcome.notes
    assert [note for note in notes if note.startswith("fetched while running: `big` (")], notes


@pytest.mark.parametrize(
    ("big", "other"),
    [
        (Answer(1, error="it cannot be pickled"), Answer(2, error="cannot pickle it")),
        (Answer(error="the notebook's kernel is gone"), None),
    ],
)
def test_a_name_that_does_not_come_is_a_name_error_that_says_why(node: Node, big: Answer, other: Answer | None) -> None:
    run = start(
        node,
        "try:\n    globals().get('big', 'a default')\nexcept NameError as error:\n    print(error)\n"
        "try:\n    other\nexcept NameError as error:\n    print(error)",
    )
    with answering(run, big=big, other=other) as kernel:
        assert run.wait().status == "ok", run.outcome.error
    assert run.text() == (
        f"`big` (80 MiB) is in the notebook and was not sent ({big.error}): --in +big\n"
        f"`other` (90 MiB) is in the notebook and was not sent ({(other or big).error}): --in +other\n"
    )
    assert kernel.asked == [("big", 0), ("other", 0)][: 2 if other else 1], "who does not answer is not asked again"


def test_an_interrupt_while_it_waits_ends_the_cell(node: Node) -> None:
    run = start(node, "try:\n    big\nfinally:\n    print('left')")
    run.wait_for(questions)
    run.signal("interrupt")
    assert run.wait().status == "interrupted"
    assert run.text() == "left\n"
    values = run.outcome.values
    assert values is not None
    home = codec.load(
        values.stream,
        [bytearray(buffer) for buffer in values.buffers],
        NamespaceInfo({}, at_home=True),
        trust=Trust.OWN,
    )
    assert home.facts["deleted"] == []


def test_a_process_that_the_cell_forks_says_that_it_cannot_ask(node: Node) -> None:
    source = (
        "import os\nread, write = os.pipe()\nif not os.fork():\n    try:\n        big\n    except NameError as error:\n"
        "        os.write(write, str(error).encode())\n    os._exit(0)\nos.wait()\nprint(os.read(read, 1000).decode())"
    )
    run = start(node, source)
    assert run.wait().status == "ok", run.outcome.error
    assert "`big` (80 MiB) is in the notebook and was not sent (process" in run.text()
    assert questions(run) == []


def test_each_rank_asks_for_itself(node: Node) -> None:
    run = start(node, "print(big, other if RANK else '')", ranks=2, gpus=2, gpu_ids=["0", "1"], env={})
    with answering(run, big=[1], other=2) as kernel:
        run.wait()
    assert sorted(name_rank for name_rank in kernel.asked if name_rank[0] == "big") == [("big", 0), ("big", 1)]


def test_a_cell_with_nothing_held_back_has_plain_globals(node: Node) -> None:
    run = node.run("import sys\nprint(type(globals()) is dict, type(sys.modules['__main__']).__name__)")
    assert run.text() == "True module\n"
    assert is_running(run)
