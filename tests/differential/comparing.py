"""What differs between two runs of a notebook, and which of it the documentation and a receipt announce."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from .playing import CellPlay, Play
from .reading import is_ours

SEMANTICS = Path(__file__).parents[2] / "docs" / "notebook-semantics.md"
_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*(?:e[+-]?[0-9]+)?")
_UNIT = re.compile(r"\b(?:ns|[µμu]s|ms|s|min|h|loops?|runs?)\b")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
#: what %timeit says of a busy machine
_SLOWEST = re.compile(r"The slowest run took .*\n")
#: a line of a traceback that names an exception, or a branch
_MEMBER = re.compile(r"[ |]*(\+|[\w.]+(Error|Exception|Group)\b)")
#: words in a value's place, as :mod:`values` gives them
_STANDS_IN = ": words in its place: "
_SHOWN = 400


@dataclass(frozen=True)
class Difference:
    """``where``: ``cell 3`` or ``name model``; ``documented``: the sentence of the receipt that announces it."""

    where: str
    what: str
    plain: str
    gpu: str
    documented: str = ""

    def __str__(self) -> str:
        said = f"\n    documented; its receipt: {self.documented}" if self.documented else ""
        return f"  {self.where}: {self.what}\n    plain: {_cut(self.plain)}\n    gpu:   {_cut(self.gpu)}{said}"


def differences(
    plain: Play, gpu: Play, again: Callable[[], Play], documented: list[re.Pattern[str]]
) -> list[Difference]:
    """All of them. ``again`` plays the plain notebook once more, where anything differs: what differs there as well
    (times, addresses, unseeded numbers) says nothing of us.
    """
    found = list(_all(plain, gpu))
    if not found:
        return []
    unsteady = {(each.where, each.what): each for each in _all(plain, again())}
    found = [each for each in found if not _is_unsteady(each, unsteady)]
    return [_with_sentence(each, gpu, documented) for each in found]


def documented_sentences(page: Path = SEMANTICS) -> list[re.Pattern[str]]:
    """The second column of the table "Known differences": what a receipt says, ``…`` for what varies."""
    _, _, section = page.read_text().partition("\n## Known differences")
    section = section.partition("\n## ")[0]
    rows = [line.strip().strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    sentences = [quoted for row in rows[2:] if len(row) > 1 for quoted in _quoted(row[1])]
    return [re.compile(".+?".join(map(re.escape, sentence.split("…"))), re.DOTALL) for sentence in sentences]


def _quoted(cell: str) -> list[str]:
    """What stands in double quotation marks."""
    return [text.strip() for text in re.findall(r"[\"“](.+?)[\"”]", cell)]


def _all(one: Play, other: Play) -> Iterator[Difference]:
    for number, (here, there) in enumerate(zip(one.cells, other.cells, strict=True), 1):
        yield from _of_cell(f"cell {number}", here, there)
    for name in dict.fromkeys([*one.names, *other.names]):
        yield from _of_name(name, one.names.get(name), other.names.get(name))
    for path in sorted({*one.files, *other.files}):
        here, there = (play.files.get(path, "none").splitlines() for play in (one, other))
        if here != there:
            pair = next(pair for pair in zip_longest(here, there, fillvalue="the end") if pair[0] != pair[1])
            yield Difference(f"file {path}", "content", *pair)


def _of_cell(where: str, here: CellPlay, there: CellPlay) -> Iterator[Difference]:
    pairs = {
        "outcome": _outcomes(here, there),
        "exception group": (_group(here), _group(there)),
        "stdout": (here.text("stdout"), there.text("stdout")),
        "stderr": (here.text("stderr"), there.text("stderr")),
        "order of output": (_order(here), _order(there)),
    }
    for what, (one, other) in pairs.items():
        if one != other and (what == "outcome" or not is_ours(here.source)):
            yield Difference(where, what, one, other)
    if is_ours(here.source):  # a GPU cell in both runs: ranks of a gang speak in any order
        return
    for number, (one_shown, other_shown) in enumerate(zip_longest(here.displays(), there.displays()), 1):
        one_bundle, other_bundle = one_shown or {}, other_shown or {}
        for mime in sorted({*one_bundle, *other_bundle}):
            if one_bundle.get(mime) != other_bundle.get(mime):
                plain, gpu = (bundle.get(mime, "nothing") for bundle in (one_bundle, other_bundle))
                yield Difference(where, f"display {number}, {mime}", plain, gpu)


def _outcomes(here: CellPlay, there: CellPlay) -> tuple[str, str]:
    """An error that IPython only shows (of a ``__repr__``, say) has no name in ipykernel's reply."""
    if here.status == there.status == "error" and "NoneType" in (here.ename, there.ename):
        return "", ""
    one, other = ("ok" if cell.status == "ok" else f"{cell.ename}: {cell.evalue}" for cell in (here, there))
    return one, other


def _group(cell: CellPlay) -> str:
    """The members of an exception group, without the lines that say where they were raised."""
    if "Exception Group Traceback" not in cell.traceback:
        return ""
    lines = cell.traceback.partition("Exception Group Traceback")[2].splitlines()
    return "\n".join(line.rstrip() for line in lines if _MEMBER.match(line))


def _order(cell: CellPlay) -> str:
    """Kinds of output without repetition; standard error comes whenever it comes."""
    kinds = [kind for kind, _ in cell.shown if kind != "stderr"]
    return " ".join(kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind != before)


def _of_name(
    name: str, here: list[tuple[str, str]] | None, there: list[tuple[str, str]] | None
) -> Iterator[Difference]:
    """The first place that differs says enough."""
    where = f"name {name}"
    if here is None or there is None:
        yield Difference(where, "is there", str(here is not None), str(there is not None))
        return
    for one, other in zip_longest(here, there, fillvalue=("the end", "")):
        if _steady(": ".join(one)) != _steady(": ".join(other)):
            yield Difference(where, "value", ": ".join(one), ": ".join(other))
            return


def _steady(text: str) -> str:
    return _ADDRESS.sub("0x…", text)


def _is_unsteady(each: Difference, unsteady: dict[tuple[str, str], Difference]) -> bool:
    """Also a plain cell does so: then what is left without figures counts, if it is the same in both plain runs."""
    other = unsteady.get((each.where, each.what))
    if other is None:
        return False
    return _loosely(each.plain) != _loosely(other.gpu) or _loosely(each.plain) == _loosely(each.gpu)


def _loosely(text: str) -> str:
    return " ".join(
        _UNIT.sub("U", _NUMBER.sub("N", _ADDRESS.sub("A", _SLOWEST.sub("", text)))).replace("±", " ").split()
    )


def _with_sentence(each: Difference, gpu: Play, documented: list[re.Pattern[str]]) -> Difference:
    """A cell's own receipt announces what differs in it; of a name, any receipt that names it."""
    kind, _, which = each.where.partition(" ")
    if kind == "file":
        return each
    if _STANDS_IN in each.gpu and any(pattern.search(each.gpu) for pattern in documented):
        return Difference(each.where, each.what, each.plain, each.gpu, each.gpu.partition(_STANDS_IN)[2])
    lines = [line for cell in gpu.cells for text in cell.said for line in text.splitlines()]
    if kind == "cell":
        lines = [line for text in gpu.cells[int(which) - 1].said for line in text.splitlines()]
    elif kind == "name":
        lines = [line for line in lines if re.search(rf"\b{re.escape(which)}\b", line)]
    for line in lines:
        if any(pattern.search(line) for pattern in documented):
            return Difference(each.where, each.what, each.plain, each.gpu, line.strip())
    return each


def _cut(text: str) -> str:
    line = text.replace("\n", "⏎")
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}… ({len(line)} characters)"
