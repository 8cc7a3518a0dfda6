"""Errors cross processes as what they are, and say what mends them."""

from __future__ import annotations

import ast
import pickle
from collections import Counter
from pathlib import Path

import pytest

from jupyter_gpu_release import errors
from jupyter_gpu_release.errors import BY_CODE, GpuReleaseError, from_code

PACKAGE = Path(errors.__file__).parent
KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
#: raised by us without a word of what helps: nothing does, or whoever passes them on says it. Not more of them
_WITHOUT_HINT = {
    "AuthenticationError": 1,
    "ClusterError": 23,
    "ConflictError": 12,
    "ForbiddenError": 3,
    "GatewayUnavailableError": 5,
    "GpuReleaseError": 2,
    "LoadError": 3,
    "NoSuchRunError": 4,
    "NothingPublishedError": 1,
    "RankError": 7,
    "RequestError": 13,
    "RunCancelledError": 8,
    "RunFailedError": 1,
    "RunLostError": 4,
    "StoreError": 20,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_error_is_itself_on_the_other_side(kind: type[GpuReleaseError]) -> None:
    there = pickle.loads(pickle.dumps(kind("what", hint="mend it")))
    assert (type(there), there.message, there.hint) == (kind, "what", "mend it")
    assert str(there) == "what\n  → mend it"
    assert str(kind("what")) == "what"
    of_code = from_code(kind.code, "what", "mend it")
    assert (of_code.code, of_code.message, of_code.hint) == (kind.code, "what", "mend it")
    assert isinstance(kind("what"), type(of_code)) or kind.code == "cannot_send" or kind is errors.MissingHereError


def test_each_code_is_one_kind_and_an_unknown_one_is_the_root() -> None:
    assert all(kind.code == code for code, kind in BY_CODE.items())
    assert {kind.code for kind in KINDS.values()} - BY_CODE.keys() == {GpuReleaseError.code}
    assert type(from_code("of tomorrow", "what")) is GpuReleaseError


def _has_hint(call: ast.Call) -> bool:
    given = [word.value for word in call.keywords if word.arg == "hint"]
    return any(not (isinstance(value, ast.Constant) and not value.value) for value in given)


def test_errors_say_what_mends_them() -> None:
    """A hint that is taken out is missed here, wherever it was."""
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS and node.args:
                found[node.func.id] += not _has_hint(node)
    assert {kind: count for kind, count in found.items() if count > _WITHOUT_HINT.get(kind, 0)} == {}
