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
        ("schema_version: 2", "environments.yaml, line 1: schema_version: schema_version 2: this version reads 1"),
        (
            "schema_version: 1\nenvironments: [{name: auto, requirements: []}]",
            "line 2: environments[0].name: the name auto is a word of",
        ),
        (
            "schema_version: 1\nenvironments: [{name: Up, requirements: []}]",
            "environments[0].name: a name has small letters, digits, `.`, `_` and `-`, and begins with",
        ),
        (
            "schema_version: 1\nenvironments: [{name: a, requirements: [], more: 1}]",
            "line 2: environments[0].more: there is no",
        ),
        (
            "schema_version: 1\nenvironments: [{name: a, requirements: [\n--index-url x]}]",
            "line 3: environments[0].requirements[0]: '--index-url x'",
        ),
        (
            "schema_version: 1\nenvironments: [{name: a, requirements: ['x @ https://u:p@h/x.whl']}]",
            "a URL or a path is not",
        ),
        (
            "schema_version: 1\nenvironments: [{name: a, requirements: gone.txt}]",
            "line 2: environments[0].requirements: ",
        ),
        (
            "schema_version: 1\nenvironments: [{name: a, requirements: []}, {name: a, requirements: []}]",
            "the name a is there twice",
        ),
        ("environments: [", "environments.yaml, line 1: "),
        ("schema_version: 1\npythons: [3.13]", "expected a text, it is a number"),
        ("schema_version: 1\npythons: ['--help']", "line 2: pythons[0]: "),
        (
            "schema_version: 1\nenvironments: [{name: a, path: envs/a}]",
            "line 2: environments[0].path: a folder is an absolute path",
        ),
        (
            "schema_version: 1\npythons: ['2.7']",
            "line 2: pythons[0]: a Python is a version (3.12) or the absolute path",
        ),
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
    assert caught.value.hint


def test_a_line_of_a_file_of_requirements_is_named_without_its_secrets(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text("einops==0.8.1\n# more\nx @ https://ann:secret@host/x.whl\n")
    named = tmp_path / "environments.yaml"
    named.write_text("schema_version: 1\nenvironments: [{name: a, requirements: all.txt}]")
    with pytest.raises(OptionError) as caught:
        read_environments(named)
    said = "a URL or a path is not a package's name and versions"
    assert caught.value.message == f"{tmp_path / 'all.txt'}, line 3: {said}"
