"""``--cache``: the key of a cell with its inputs, or why there is none."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from ..core.cache import KEY_VERSION, Marks, normalised, options_that_count, why_not
from ..core.cell import analyse, parse_cell
from ..core.messages import decode, encode
from ..sending.collecting import Prepared
from ..sending.place import find_workdir
from ..sending.submission import Cell, exported
from ..storage.graph_key import GraphKey, UnkeyableError
from ..storage.key_atoms import digest_of_bytes

if TYPE_CHECKING:
    from .notebook import Notebook

#: with more objects than this a rank tells none of them apart (node/known.py)
_MOST_OBJECTS = 20_000


class NoKeyError(Exception):
    """The cell cannot be keyed; the message says why."""


@dataclass(frozen=True)
class CacheKey:
    """``packages``: top-level ones whose versions on the nodes belong to the key; ``graph``: of the inputs."""

    key: str
    packages: list[str]
    graph: GraphKey
    prepared: Prepared

    def marks(self) -> bytes:
        """Which object of what is sent has which number in the key."""
        memo, numbers = self.prepared.memo, self.graph.numbers
        objects: list[int] = []
        if len(memo) <= _MOST_OBJECTS:
            for ident, (sent, _) in memo.items():
                if ident in numbers:
                    objects += (sent, numbers[ident])
        return encode(Marks(objects, self.graph.idents))

    def as_if_sent_by(self, marks: bytes) -> tuple[Prepared, dict[str, str]]:
        """This kernel's objects under the numbers, and ids → its own ids, of the kernel that made ``marks``.

        Equal keys mean equal graphs: number n there is number n here.
        """
        theirs = decode(marks, Marks) if marks else Marks()
        sent_there = dict(zip(theirs.objects[1::2], theirs.objects[::2], strict=True))
        memo: dict[int, tuple[int, Any]] = {}
        for ident, (_, thing) in self.prepared.memo.items():
            number = sent_there.get(self.graph.numbers.get(ident, -1))
            if number is not None:
                memo[ident] = (number, thing)
        ours = self.graph.idents
        aliases = {ident: ours[number] for number, ident in theirs.idents.items() if number in ours}
        return replace(self.prepared, memo=memo), aliases


def cache_key(notebook: Notebook, cell: Cell, prepared: Prepared) -> CacheKey:
    """The key; raises :class:`NoKeyError` for a cell or an input that has none."""
    transform = notebook.shell.transform_cell
    tree = parse_cell(cell.body, transform, line_offset=cell.place.line_offset)
    reason = why_not(tree, analyse(tree, transform))
    if not reason and prepared.held:
        reason = "which names it asks for is not known before it runs"
    if not reason and prepared.unshipped:
        reason = "its local modules are too large to be looked at"
    if reason:
        raise NoKeyError(reason)
    try:
        graph = notebook.names.graph_key(prepared.originals)
        settings = notebook.names.settings_key()
    except UnkeyableError as error:
        raise NoKeyError(f"an input has no stable digest: {error}") from error
    parts = [
        KEY_VERSION, platform.python_version(), normalised(tree), graph.digest, settings,
        sorted((path, digest_of_bytes(source)) for path, source in prepared.modules.items()),
        prepared.sys_path, sorted(prepared.reevaluate.items()), find_workdir(cell.options.workdir).path,
        cell.in_terminal, options_that_count(cell.options, exported(cell.options.export)),
    ]  # fmt: skip
    key = str(blake3(msgspec.msgpack.encode(parts)).hexdigest())
    return CacheKey(key, _packages(prepared, graph), graph, prepared)


def _packages(prepared: Prepared, graph: GraphKey) -> list[str]:
    local = {path.partition("/")[0].removesuffix(".py") for path in prepared.modules}
    tops = {module.partition(".")[0] for module in graph.modules} - local - {"__main__", "jupyter_gpu_release"}
    return sorted(tops | set(prepared.packages))
