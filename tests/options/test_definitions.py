from __future__ import annotations

import pytest

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.options.definitions import (
    OPTIONS,
    from_mapping,
    overlay,
    parse_settings,
    refuse_rest,
    split_line,
)


def test_options_and_statement_are_parted():
    line = split_line(" --gpus 2 --memory=8GiB --env A=1 --env 'B=two words' --fresh model.fit(X, y, batch=-1)")
    assert line.written == {"gpus": ["2"], "memory": ["8GiB"], "env": ["A=1", "B=two words"], "fresh": [""]}
    assert line.rest == "model.fit(X, y, batch=-1)"


def test_statement_keeps_its_spelling():
    assert split_line("--gpus 1 print('a  b',  x)").rest == "print('a  b',  x)"
    assert split_line("--gpus 1 -- --x").rest == "--x"
    assert split_line("").rest == split_line("--gpus 1 --").rest == ""
    assert split_line("--gpus 1  # one, for now").rest == ""
    assert split_line("--name #1 f()").written == {"name": ["#1"]}


@pytest.mark.parametrize("names", ["a, b,c", "a ,b , c", "a,b, c"])
def test_lists_may_have_blanks_at_their_commas(names: str):
    line = split_line(f"--gather {names} --export A, B --name x, --skip y, --gpus 2 f(a, b)")
    lists = {"gather": ["a,b,c"], "export": ["A,B"], "skip": ["y,"]}
    assert line.written == {**lists, "name": ["x,"], "gpus": ["2"]}
    assert line.rest == "f(a, b)"


def test_negative_value_is_a_value():
    assert split_line("--gpus -1").written == {"gpus": ["-1"]}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--gpu 2", "did you mean --gpus?"),
        ("--min_gpu_mem 2", "did you mean --min-gpu-memory?"),
        ("--tiemout 2h", "did you mean --timeout?"),
        ("--num_gpus 2", "did you mean --gpus?"),
        ("--restartable=perhaps", "restartable=perhaps: not true or false"),
        ("--frobnicate", "the options are listed by %gpu_train?"),
        ("--gpus", "--gpus needs a value"),
        ("--gpus --fresh", "--gpus needs a value"),
        ("--fresh=1", "takes no value"),
        ("--gpus 1 --gpus 2", "given twice, as 1 and 2"),
        ("--name 'a b", "a quote is not closed"),
    ],
)
def test_bad_lines_say_what_is_wrong(line: str, words: str):
    with pytest.raises(OptionError) as caught:
        split_line(line)
    assert words in str(caught.value)


def test_same_value_twice_is_harmless():
    assert split_line("--gpus 2 --gpus 2").written == {"gpus": ["2"]}


@pytest.mark.parametrize(
    ("rest", "hint"),
    [
        ("2", "did you mean --gpus 2?"),
        ("gpus=2", "did you mean --gpus 2?"),
        ("-gpus 2", "did you mean --gpus?"),
        ("print(1)", "options begin with two dashes: --gpus 2"),
    ],
)
def test_stray_words_are_explained(rest: str, hint: str):
    assert refuse_rest(rest).hint == hint


def test_settings():
    assert parse_settings("gpus=2 memory=8GiB env=A='x y' env=B=2") == {
        "gpus": ["2"],
        "memory": ["8GiB"],
        "env": ["A=x y", "B=2"],
    }
    assert parse_settings("on_disconnect=cancel") == {"on-disconnect": ["cancel"]}
    assert parse_settings("gpus=") == {"gpus": [""]}


@pytest.mark.parametrize("line", ["gpus", "gpu=2", "out=a", "estimate=1", "gpus='2", "gpus=1 gpus=2"])
def test_bad_settings(line: str):
    with pytest.raises(OptionError):
        parse_settings(line)


def test_defaults_from_a_file():
    written = from_mapping({"gpus": 2, "env": ["A=1", "B=2"], "fresh": True})
    assert written == {"gpus": ["2"], "env": ["A=1", "B=2"], "fresh": [""]}
    assert from_mapping({"fresh": False}) == {}
    assert from_mapping({"restartable": False}) == {"restartable": ["False"]}, "whatever the queue says"
    with pytest.raises(OptionError):
        from_mapping({"fresh": "perhaps"})


def test_later_levels_win():
    assert overlay({"gpus": ["1"], "memory": ["1GiB"]}, {"gpus": ["2"]}) == {"gpus": ["2"], "memory": ["1GiB"]}


def test_gpu_of_a_lower_level():
    assert overlay({"gpus": ["h100:2"]}, {"gpus": ["4"]}) == {"gpus": ["4"], "gpu-type": ["h100"]}
    assert overlay({"gpus": ["h100:2"]}, {"gpu-type": ["a100"]}) == {"gpus": ["2"], "gpu-type": ["a100"]}
    assert overlay({"gpu-type": ["h100"]}, {"gpus": ["a100:2"]}) == {"gpus": ["a100:2"]}


def test_cpu_stage_ignores_default_gpus():
    assert overlay({"gpu-type": ["h100"], "min-gpu-memory": ["8GiB"]}, {"gpus": ["0"]}) == {"gpus": ["0"]}


def test_table_is_whole():
    for name, option in OPTIONS.items():
        assert option.name == name
        assert option.help
        assert not (option.is_flag and option.many)
