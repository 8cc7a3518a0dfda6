"""The command line's grammar: every mistake gets one sentence, a mend and exit status 2; nothing is taken."""

from __future__ import annotations

import shlex

import pytest

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.cli.parser import OVERVIEW, parse, print_help
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.settings.flags import COMMANDS


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("strat", "strat: no such command", "did you mean `jupyter gpu start`?"),
        ("statsu --json", "statsu: no such command", "did you mean `jupyter gpu status`?"),
        ("stat", "stat: no such command", "did you mean `jupyter gpu status`?"),
        (
            "frobnicate",
            "frobnicate: no such command",
            "commands: start, stop, status, queues, report, runs, cancel, preempt, token, nodes, environments, notify, "
            "gc, attach, simulate, advise, mcp, docs, doctor",
        ),
        ("start --gpu 2", "--gpu: no such option of `jupyter gpu start`", "did you mean --gpus?"),
        ("start --simulated-gpu=2", "--simulated-gpu: no such option", "did you mean --simulated-gpus?"),
        ("status --jsn", "--jsn: no such option of `jupyter gpu status`", "did you mean --json?"),
        ("start --gpus 0.5", "--gpus 0.5: not a number of at least 1", "--gpus 2"),
        ("start --gpus 0", "--gpus 0: not a number of at least 1", "--gpus 2"),
        ("start --gpus -1", "--gpus -1: not a number of at least 1", "--gpus 2"),
        ("start --simulated-gpus many", "--simulated-gpus many: not a number", "--simulated-gpus 2"),
        ("start --gpus 1 --simulated-gpus 2", "--simulated-gpus: not allowed with argument --gpus", "--help"),
        ("start --gpus 1 --address h:1", "--address: not allowed with argument --gpus", "--help"),
        ("start --address head", "--address head: not HOST:PORT", "10.0.0.5:6379"),
        ("start --address ray://head:10001", "--address ray://head:10001: not HOST:PORT", "10.0.0.5:6379"),
        ("start --address head:99999", "--address head:99999: not HOST:PORT", "10.0.0.5:6379"),
        ("start --port http", "--port http: not a port", "1 to 65535"),
        ("start --port 65536", "--port 65536: not a port", "1 to 65535"),
        ("stop now", "now: not expected here", "--help"),
        ("cancel", "RUN", "--help"),
        ("runs shwo x", "runs shwo: no such command", "did you mean `jupyter gpu runs show RUN`?"),
        ("start --tls-crt c.pem", "--tls-crt: no such option of `jupyter gpu start`", "--tls-cert"),
        ("token", "create|list|revoke", "--help"),
        ("token create", "--user", "--help"),
        ("token create --user ann --expire 1d", "--expire: no such option", "did you mean --expires?"),
        ("token revoke", "ID --user is required", "--help"),
        ("token revoke x --user ann", "not allowed with argument", "--help"),
        ("nodes empty n", "empty", "nodes --help"),
    ],
)
def test_mistakes_are_explained(words: str, message: str, hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(words.split())
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_mistake_is_exit_status_2_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strat"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "strat: no such command\n  → did you mean `jupyter gpu start`?\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("runs show", "runs show: which run?\n  → jupyter gpu runs show RUN\n"),
        ("runs import a b", "runs import takes one FILE, not b too\n  → jupyter gpu runs import FILE\n"),
    ],
)
def test_as_many_runs_and_files_as_a_command_takes(
    words: str, said: str, own_home: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) != 0
    assert said in capsys.readouterr().err


def test_without_a_command_the_overview_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "%%gpu_train" in capsys.readouterr().out


def test_start_options() -> None:
    arguments = parse(["start", "--simulated-gpus", "8", "--host", "::1", "--port", "8765", "--store", "/s"])
    assert (arguments.simulated_gpus, arguments.host, arguments.port, arguments.store) == (8, "::1", 8765, "/s")
    assert arguments.gpus is None
    assert arguments.address is None


def test_abbreviations_are_not_accepted() -> None:
    with pytest.raises(OptionError, match="--sim"):
        parse(["start", "--sim", "2"])


def test_words_may_come_after_options() -> None:
    arguments = parse(["runs", "import", "--trust", "x.tar"])
    assert (arguments.action, arguments.run, arguments.file, arguments.trust) == ("import", "x.tar", None, True)
    arguments = parse(["runs", "export", "--json", "last", "y.tar"])
    assert (arguments.action, arguments.run, arguments.file) == ("export", "last", "y.tar")
    with pytest.raises(OptionError, match="z: not expected here"):
        parse(["runs", "export", "--json", "x", "y", "z"])


def test_runs_show() -> None:
    arguments = parse(["runs", "show", "20261121-034512-9f3a12bc"])
    assert (arguments.action, arguments.run) == ("show", "20261121-034512-9f3a12bc")


def test_token_options() -> None:
    made = parse(["token", "create", "--user", "ann", "--role", "admin", "--expires", "12h", "--label", "laptop"])
    assert (made.action, made.user, made.role, made.expires, made.label, made.out) == (
        "create",
        "ann",
        "admin",
        "12h",
        "laptop",
        None,
    )
    assert parse(["token", "create", "--user", "ann"]).expires == "30d"
    assert parse(["token", "revoke", "0123456789"]).id == "0123456789"
    assert parse(["token", "revoke", "--user", "ann"]).user == "ann"


def test_the_overview_names_each_command_once_with_an_example_that_is_understood(
    capsys: pytest.CaptureFixture[str],
) -> None:
    examples = {name: example for group in OVERVIEW.values() for name, example in group.items()}
    assert sorted(name for group in OVERVIEW.values() for name in group) == sorted(
        name for name in COMMANDS if " " not in name
    )
    for name, example in examples.items():
        assert parse(shlex.split(example)).command == name
    print_help()
    shown = capsys.readouterr().out
    assert shown.index("Your runs:") < shown.index("  cancel ") < shown.index("The cluster:") < shown.index("  start ")
    assert max(map(len, shown.splitlines())) <= 86
