"""A file that an operator writes: what is wrong in it is said in words, with its line and its cure."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.settings.yaml_document import YamlDocument


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    size: int | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    parts: list[_Part] = []
    by_name: dict[str, _Part] = {}
    best: _Part | None = None


@pytest.mark.parametrize(
    ("text", "said", "cure"),
    [
        ("name: 12", "f.yaml, line 1: name: expected a text, it is a whole number", "write it in quotes"),
        ("name: [a]", "name: expected a text, it is a list", "see the page"),
        (
            "\nparts: [{size: two}]",
            "line 2: parts[0].size: expected a whole number or nothing, it is a text",
            "see the",
        ),
        ("parts: [{size: 1},\n {siez: 1}]", "line 2: parts[1].siez: there is no such field", "did you mean size?"),
        ("best: {siez: 1}", "best.siez: there is no such field", "did you mean size?"),
        ("by_name: {a: {colour: 1}}", "colour: there is no such field", "there is: size"),
        ("other: 1", "other: there is no such field", "there is: name, parts, by_name, best"),
        ("name: {", "f.yaml, line 1: not YAML: ", "see the page"),
        ("name: !!python/name:os.system", "not YAML: ", "see the page"),
        ("name: a\x00b", "f.yaml: not YAML: ", "see the page"),
        ("name: 2026-13-45", "f.yaml, line 1: name: 2026-13-45: there is no such value", "see the page"),
        ("name: !!timestamp soon", "name: soon: there is no such value", "see the page"),
        ("name: !!bool perhaps", "name: perhaps: there is no such value", "see the page"),
    ],
)
def test_a_mistake_has_its_line_and_its_cure(text: str, said: str, cure: str) -> None:
    with pytest.raises(OptionError) as refused:
        YamlDocument(text, "f.yaml", "see the page").convert(_File)
    assert said in refused.value.message
    assert cure in refused.value.hint
