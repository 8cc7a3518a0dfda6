"""A rank gets one answer to each question that it asks the notebook, and no other."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_gpu_release.node.agent.gang_run import RankConnection
from jupyter_gpu_release.node.gang.layout import RankSpec
from jupyter_gpu_release.node.ipc.frames import FrameReader, Kind
from jupyter_gpu_release.protocol.fetch import Answer
from jupyter_gpu_release.protocol.wire import decode, encode


class _Writer:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def _connection(writer: Any) -> RankConnection:
    spec = RankSpec.__new__(RankSpec)
    reader: Any = asyncio.StreamReader.__new__(asyncio.StreamReader)
    return RankConnection(spec, reader, writer)


def _passed_on(writer: _Writer) -> list[tuple[int, str]]:
    frames = list(FrameReader().feed(writer.data))
    assert all(kind is Kind.ANSWER for kind, _ in frames)
    return [(answer.ask, answer.error) for answer in (decode(body, Answer) for _, body in frames)]


def test_only_the_answer_to_the_question_that_waits_is_passed_on() -> None:
    writer = _Writer()
    rank = _connection(writer)
    rank.pass_answer(encode(Answer(ask=1, error="nobody asked")))
    rank.question = 2
    for error in ("late", "right", "again"):
        rank.pass_answer(encode(Answer(ask=1 if error == "late" else 2, error=error)))
    rank.pass_answer(encode(Answer(error="gone, but nobody waits")))
    rank.question = 3
    rank.pass_answer(encode(Answer(error="gone")))
    assert _passed_on(writer) == [(2, "right"), (0, "gone")]
