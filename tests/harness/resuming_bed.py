"""Runs that are preempted in chosen rounds and resumed in another process."""

from __future__ import annotations

import contextlib
import io
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from node_bed import Node, Run

import jupyter_gpu_release
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.node import RunSaved, RunStays, StartOrder
from jupyter_gpu_release.protocol.runs import Outcome, Save
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.graph_file import read_graph
from jupyter_gpu_release.unpickling import Trust

#: first statements of the cells here: ``pause(n)`` waits for the notice where the test gives one. They are tried
#: after a second (may they be moved at all?) only where a test is of that: on a busy machine it may be at any statement
PRELUDE = """
import builtins, os, time
import jupyter_gpu_release as gpu_release

def begin(is_tried={is_tried}):
    loops = getattr(builtins, "__gpu_release_loops__", None)
    if loops is not None and not is_tried:
        loops._pace._trial_s = float("inf")
        loops._set_due()

begin()

def pause(n, folder={folder!r}):
    path = f"{{folder}}/{{n}}"
    if os.path.exists(path):
        os.unlink(path)
        loops = builtins.__gpu_release_loops__
        while loops._notice.word not in (1, 2):
            time.sleep(0.001)
        while loops._saver is not None and not loops._saver.is_over:  # the answer would come a round later
            time.sleep(0.001)
"""


class Attempts:
    """One run and its attempts."""

    def __init__(
        self, node: Node, source: str, stops: Sequence[Any], *, is_tried: bool = False, **options: Any
    ) -> None:
        self.node = node
        self._folder = node.store / f"stops-{secrets.token_hex(4)}"
        self._folder.mkdir()
        for stop in stops:
            (self._folder / str(stop)).touch()
        self._left = len(stops)
        self._source = PRELUDE.format(folder=str(self._folder), is_tried=is_tried) + source
        self._options = {"restartable": True, **options}
        self.runs: list[Run] = []
        self.begin()

    @property
    def run(self) -> Run:
        """The latest attempt."""
        return self.runs[-1]

    def begin(self, save: Save | None = None, order: StartOrder | None = None) -> None:
        """Begin the first attempt, or the next one from ``save``; ``order``: one that is other than the last."""
        if not self.runs:
            self.runs.append(self.node.start(self._source, **self._options))
            return
        (self.node.marks / self.run.order.run).unlink(missing_ok=True)
        last = max((event.n for event in self.events), default=0)
        order = msgspec.structs.replace(
            order or self.run.order, attempt=self.run.order.attempt + 1, save=save, after_event=last
        )
        self.runs.append(Run(self.node, order))

    def ask(self) -> bool:
        """Give the notice."""
        return bool(self.node.call(self._ask()))

    async def _ask(self) -> bool:
        return self.run.on_node.preempt()

    def comes_to(self, until: Callable[..., Any], condition: Callable[[], object], words: str) -> None:
        """Wait for something that the attempt does; one that ends before it says how."""
        until(lambda: condition() or self.run.future.done(), words)
        assert not self.run.future.done(), self.run.outcome

    def to_end(self, until: Callable[..., Any]) -> Outcome:
        """Give a notice wherever the cell pauses, and let it go on, to its end."""
        while True:
            until(lambda: self.stops_left() < self._left or self.run.future.done(), "the cell pauses")
            self._left = self.stops_left()
            if not self.run.future.done():
                self.ask()
            until(lambda: self.run.future.done() or self.refusals, "the attempt ends")
            assert not self.refusals, self.refusals
            outcome = self.run.wait()
            if outcome.status != "preempted":
                return outcome
            self.begin(save_of(outcome))

    def stops_left(self) -> int:
        """How many of its pauses the cell has not come to."""
        return len(list(self._folder.iterdir()))

    @property
    def events(self) -> list[Event]:
        """What all attempts said."""
        return [event for run in self.runs for event in run.events]

    @property
    def refusals(self) -> list[RunStays]:
        """Its answers to notices that it does not follow, each once: the first save may have told it before."""
        return list(dict.fromkeys(message for message in self.run.messages if isinstance(message, RunStays)))

    @property
    def text(self) -> str:
        """What they printed."""
        return "".join(run.text() for run in self.runs)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.run.order.folder)

    def names(self) -> dict[str, Any]:
        """What came home."""
        return names_of(self.run.outcome, self.folder)


def played_plain(source: str) -> tuple[dict[str, Any], str]:
    """The names that a cell leaves when nobody disturbs it, and what it prints; here, as in a notebook."""
    names = {"__name__": "__main__", "gpu_release": jupyter_gpu_release, "pause": lambda n: None}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(source, "<plain cell>", "exec", dont_inherit=True), names)
    return names, printed.getvalue()


def loop_over(header: str, before: str, after: str) -> str:
    """A cell with a loop that draws a random number in each round, and pauses."""
    return (
        f"import random\n{before}\nrandom.seed(7)\nseen, n = [], 0\nfor item in {header}:\n    n += 1\n    pause(n)\n"
        "    seen.append((repr(item), random.random()))\nelse:\n    seen.append('else')\n"
        + after
        + "last = random.random()\n"
    )


def resumed_as_plain(node: Node, source: str, until: Callable[..., Any]) -> Attempts:
    """The attempts of a cell that is left in rounds 2 and 5 and ends as an undisturbed one does."""
    attempts = Attempts(node, source, [2, 5])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert len(attempts.runs) == 3
    plain, _ = played_plain(source)
    assert {name: attempts.names()[name] for name in ("seen", "last")} == {
        name: plain[name] for name in ("seen", "last")
    }
    return attempts


def saves_of(attempts: Attempts) -> list[Save]:
    """Saves without notice that the latest attempt has told of."""
    return [message.save for message in attempts.run.messages if isinstance(message, RunSaved)]


def save_of(outcome: Outcome) -> Save:
    """The save as the gateway hands it to the next attempt."""
    assert outcome.save is not None
    return msgspec.structs.replace(outcome.save, values=outcome.values, results=outcome.results)


def names_of(outcome: Outcome, folder: Path) -> dict[str, Any]:
    """Values as another kernel reads them."""
    return loaded(outcome.values or Graph(), folder).values


def loaded(graph: Graph, folder: Path) -> codec.Loaded:
    """A graph, read."""
    stream, buffers = read_graph(graph, folder)
    return codec.load(stream, buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN)
