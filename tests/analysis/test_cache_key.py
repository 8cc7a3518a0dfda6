"""What makes two cells the same one."""

from __future__ import annotations

import ast
import dataclasses

import pytest

from jupyter_gpu_release.analysis.cache_key import RULES, normalised_code, options_that_count, why_not
from jupyter_gpu_release.analysis.cell_facts import parse_cell
from jupyter_gpu_release.analysis.dataflow import analyse
from jupyter_gpu_release.options.definitions import OPTIONS, split_line
from jupyter_gpu_release.options.run_options import RunOptions, build_options


def form(source: str) -> str:
    return normalised_code(ast.parse(source))


def test_formatting_does_not_matter_code_does() -> None:
    one = form("x = [1, 2]  # two\n\n\nprint('x')\n")
    assert one == form('x = [\n    1,\n    2,\n]\nprint( "x" )')
    assert one == form("x = [1, 2]\nprint(u'x')")
    assert one != form("x = [1, 3]\nprint('x')")
    assert one != form("print('x')\nx = [1, 2]")


def test_every_option_has_its_rule() -> None:
    assert RULES.keys() == OPTIONS.keys()
    assert all(rule.why for rule in RULES.values())


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("--gpus 2", True),
        ("--gpus h100:1", True),
        ("--gpus 2 --ranks 2", True),
        ("--gather losses", True),
        ("--cpus 3", True),
        ("--env A=1", True),
        ("--export HOME", True),
        ("--out a", True),
        ("--skip a", True),
        ("--fresh", True),
        ("--label a=b", True),
        ("--timeout 3h", False),
        ("--wait 1h", False),
        ("--memory 2GiB", False),
        ("--name other", False),
        ("--queue a", False),
        ("--priority low", False),
        ("--on-disconnect cancel", False),
        ("--min-gpu-memory 2GiB", False),
    ],
)
def test_options(line: str, counts: bool) -> None:
    exported = {"HOME": "/home/ann"} if "--export" in line else {}
    usual = options_that_count(options(""), {})
    assert (options_that_count(options(line), exported) != usual) is counts
    name = line[2:].split()[0]
    assert RULES[name].counts is counts


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("--gpus h100:1", "--gpus H100:1", True),
        ("--out a,b", "--out b,a", True),
        ("--gpus 2 --ranks 2 --ps 1", "--gpus 2 --ranks 2 --ps 1,evaluator", False),
        ("--gpus 2 --ranks 2 --nodes 1", "--gpus 2 --ranks 2 --nodes 2", False),
        ("--gpus 2 --ranks 2 --nodes 1", "--gpus 2 --ranks 2 --nodes any", False),
    ],
)
def test_lines_that_mean_the_same_have_one_key(one: str, other: str, same: bool) -> None:
    assert (options_that_count(options(one), {}) == options_that_count(options(other), {})) is same


def options(line: str) -> RunOptions:
    return build_options(split_line(line).written)


def test_every_option_that_counts_is_looked_at_or_comes_by_itself() -> None:
    fields = {field.name for field in dataclasses.fields(RunOptions)}
    assert {"ask", "env", "export", "workdir", "out", "skip", "fresh", "cache"} <= fields


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = input()", "input"),
        ("exec('x = 1')", "made when it runs"),
        ("__import__('os')", "imports modules"),
        ("import importlib\nimportlib.import_module(name)", "imports modules"),
        ("get_ipython().system('ls')", "commands of the shell"),
        ("get_ipython().system(command)", "commands of the shell"),
        ("get_ipython()", "the shell itself"),
        ("get_ipython().run_line_magic('run', 'a.py')", "the magic %run"),
        ("%pip install x", "installs"),
        ("get_ipython().run_line_magic('matplotlib', 'inline')", ""),
        ("x = model.fit(1)", ""),
        ("re.compile('a')", ""),
    ],
)
def test_what_cannot_be_keyed(source: str, reason: str) -> None:
    def transform(text: str) -> str:
        return text.replace("%pip install x", "get_ipython().run_line_magic('pip', 'install x')")

    tree = parse_cell(source, transform)
    found = why_not(tree, analyse(tree, transform))
    assert reason in found if reason else found == ""
