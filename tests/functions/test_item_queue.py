"""Which worker gets which item: prefetching, the last items, repeated questions, workers that end."""

from __future__ import annotations

from jupyter_gpu_release.functions.item_queue import ItemQueue
from jupyter_gpu_release.protocol.fetch import ItemRequest


class Workers:
    """Workers that ask as real ones do."""

    def __init__(self, queue: ItemQueue) -> None:
        self.queue = queue
        self._asked: dict[str, int] = {}

    def ask(self, run: str, begins: int | None = None) -> dict[str, int | None]:
        """The answers after one more question."""
        self._asked[run] = self._asked.get(run, 0) + 1
        self.queue.on_question(run, ItemRequest(self._asked[run], begins))
        return self.answers()

    def answers(self) -> dict[str, int | None]:
        return {run: answer.item for run, answer in self.queue.take_answers()}


def test_a_worker_holds_the_next_item_while_there_are_enough_and_the_last_ones_go_to_who_is_free() -> None:
    workers = Workers(ItemQueue(range(5)))
    assert workers.ask("a") == {"a": 0}
    assert workers.ask("b") == {"b": 1}
    assert workers.ask("a", 0) == {"a": 2}
    assert workers.ask("b", 1) == {"b": 3}
    workers.queue.note_done("b", 1)
    assert workers.ask("b", 3) == {}, "the last item waits for whoever is free first"
    workers.queue.note_done("b", 3)
    assert workers.answers() == {"b": 4}
    assert workers.ask("b", 4) == {}
    workers.queue.note_done("b", 4)
    assert workers.answers() == {"b": None}, "nothing is left for it; the other one is at work still"
    workers.queue.note_done("a", 0)
    assert workers.ask("a", 2) == {}
    workers.queue.note_done("a", 2)
    assert workers.answers() == {"a": None}


def test_of_a_worker_that_ends_only_what_had_begun_is_lost() -> None:
    workers = Workers(ItemQueue(range(4)))
    workers.ask("a")
    workers.ask("a", 0)
    assert workers.queue.waiting == 2
    assert workers.queue.on_worker_ended("a") == [0]
    assert workers.queue.waiting == 3
    assert [workers.ask(run) for run in "bcd"] == [{"b": 1}, {"c": 2}, {"d": 3}]
    assert workers.queue.on_worker_ended("unknown") == []
    workers = Workers(ItemQueue(range(4)))
    assert [workers.ask("a"), workers.ask("a")] == [{"a": 0}, {"a": 1}]
    assert workers.queue.on_worker_ended("a") == []
    assert [workers.ask(run) for run in "bc"] == [{"b": 0}, {"c": 1}], "in their order"


def test_a_question_that_is_asked_again_has_the_same_answer() -> None:
    queue = ItemQueue(range(9))
    for _ in range(3):
        queue.on_question("a", ItemRequest(1))
        assert [(run, answer.ask, answer.item) for run, answer in queue.take_answers()] == [("a", 1, 0)]
    assert queue.take_answers() == []
    assert queue.waiting == 8
    queue.dismiss_worker("b")
    queue.on_question("b", ItemRequest(1))
    assert [(run, answer.item) for run, answer in queue.take_answers()] == [("b", None)], "whatever waits"


def test_an_item_is_taken_out_once_and_before_it_is_handed_out_only() -> None:
    workers = Workers(ItemQueue(range(3)))
    workers.ask("a")
    assert [workers.queue.take_out(item) for item in (0, 1, 1)] == [False, True, False]
    assert workers.queue.drop_waiting() == [2]
    assert workers.queue.drop_waiting() == []
