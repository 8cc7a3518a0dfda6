"""Named environments: who is offered which, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_blocks import block

from jupyter_gpu_release.environments.named import read_environments
from jupyter_gpu_release.errors import OptionError

_WHEEL = f"{{name = 'a-1-py3-none-any.whl', hashes = {{sha256 = '{'0' * 64}'}}}}"
_FILE = block("operate/environments.md", "## Named environments").text


def test_environments_are_offered_to_whom_the_file_names(tmp_path: Path) -> None:
    (tmp_path / "environments.yaml").write_text(_FILE)
    (tmp_path / "text.txt").write_text("# for all\nspacy==3.8  # pinned\n\n")
    lock = f"lock-version = '1.0'\n[[packages]]\nname = 'a'\nversion = '1'\nwheels = [{_WHEEL}]"
    (tmp_path / "pylock.toml").write_text(lock)
    offers = read_environments(tmp_path / "environments.yaml")
    vision, text, locked, older, theirs = offers.environments
    assert offers.pythons == ["3.13", "/opt/python3.12/bin/python3"]
    assert (older.environment.interpreter, older.environment.requirements) == ("3.12", ["einops"])
    assert (theirs.environment.interpreter, theirs.environment.requirements) == ("/shared/envs/team", [])
    assert vision.environment.requirements == ["einops==0.8.1", "timm==1.0.20"]
    assert (text.environment.name, text.environment.requirements) == ("text", ["spacy==3.8"])
    assert (locked.environment.requirements, locked.environment.is_locked) == (["a==1"], True)
    groups = {"imaging": ["bob"]}
    assert [vision.is_for(user, groups) for user in ("ann", "bob", "cleo")] == [True, True, False]
    assert not vision.is_for("bob", {})
    assert text.is_for("cleo", groups)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema_version: 2", "schema_version 2"),
        ("schema_version: 1\nenvironments: [{name: auto, requirements: []}]", "auto is a word of"),
        ("schema_version: 1\nenvironments: [{name: Up, requirements: []}]", "name"),
        ("schema_version: 1\nenvironments: [{name: a, requirements: [], more: 1}]", "more"),
        ("schema_version: 1\nenvironments: [{name: a, requirements: [--index-url x]}]", "'--index-url x' is not"),
        ("schema_version: 1\nenvironments: [{name: a, requirements: ['x @ https://u:p@h/x.whl']}]", "not a package's"),
        ("schema_version: 1\nenvironments: [{name: a, requirements: gone.txt}]", "gone.txt: No such file"),
        (
            "schema_version: 1\nenvironments: [{name: a, requirements: []}, {name: a, requirements: []}]",
            "the name a is there twice",
        ),
        ("environments: [", "environments.yaml: "),
        ("schema_version: 1\npythons: [3.13]", "Expected `str`, got `float`"),
        ("schema_version: 1\npythons: ['--help']", "$.pythons[0]"),
        ("schema_version: 1\nenvironments: [{name: a, path: envs/a}]", "$.environments[0].path"),
        (
            "schema_version: 1\nenvironments: [{name: a, path: /a, python: '3.12'}]",
            "`python`, `path` and a lock file do not go together",
        ),
    ],
)
def test_mistakes_are_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "environments.yaml").write_text(text)
    with pytest.raises(OptionError) as caught:
        read_environments(tmp_path / "environments.yaml")
    assert said in str(caught.value)
