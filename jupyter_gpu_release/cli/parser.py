"""Grammar, "did you mean"."""

from __future__ import annotations

import argparse
import difflib
import functools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .._version import __version__
from ..errors import OptionError
from ..settings.flags import COMMANDS
from ..settings.setting import Setting, Unit

RUNS_ACTIONS = ("show", "pin", "unpin", "export", "import")

_EPILOG = """\
exit status: 0 done · 1 it did not work (the message says why and what to do)
             2 the command was not understood · 130 interrupted
"""
#: what `jupyter gpu --help` shows: of each command its sentence and an example
OVERVIEW: dict[str, dict[str, str]] = {
    "Your runs": {
        "status": "status",
        "runs": "runs show last",
        "attach": "attach last",
        "cancel": "cancel last",
        "preempt": "preempt last",
        "queues": "queues",
        "report": "report --last 7d",
        "notify": "notify --email ann@example.org --on end",
        "advise": "advise train.ipynb",
        "mcp": "mcp",
        "docs": "docs tutorial",
    },
    "The cluster": {
        "start": "start --simulated-gpus 4",
        "stop": "stop --drain",
        "doctor": "doctor",
        "nodes": "nodes drain gpu-07 --reason 'new driver'",
        "token": "token create --user ann --out ann.token",
        "environments": "environments build vision",
        "gc": "gc --older-than 30d --dry-run",
        "simulate": "simulate jobs.csv --cluster cluster.yaml",
    },
}
_WIDTH, _NAME_WIDTH = 80, 15


class _Parser(argparse.ArgumentParser):
    """Raises :class:`OptionError` instead of printing usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(message, hint=f"see `{self.prog} --help`")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the words after ``jupyter gpu``; raises :class:`OptionError` for what is wrong with them."""
    parser, commands = build()
    _check_command(words, commands)
    arguments, rest = parser.parse_known_args(list(words))
    if arguments.command == "runs":
        _check_action(arguments.action)
        rest = _fill(arguments, rest)
    if rest:
        command, action = arguments.command or "", getattr(arguments, "action", "")
        _refuse_rest(rest, commands.get(f"{command} {action}") or commands.get(command, parser))
    return arguments


def _fill(arguments: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """``runs import --trust FILE``: argparse takes all words that may be missing before the first option."""
    left = list(rest)
    for name in ("run", "file"):
        if getattr(arguments, name) is None and left and not left[0].startswith("-"):
            setattr(arguments, name, left.pop(0))
    return left


def print_help() -> None:
    """Print the overview (``jupyter gpu`` without a command)."""
    build()[0].print_help()


def build() -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of all commands, and those of each by its full name."""
    parser = _Parser(
        prog="jupyter gpu",
        usage="jupyter gpu COMMAND …",
        description=_overview(),
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jupyter_gpu_release {__version__}")
    at_top = parser.add_subparsers(
        dest="command", metavar="COMMAND", prog="jupyter gpu", help=argparse.SUPPRESS, parser_class=_Parser
    )
    groups = {"": at_top}
    commands: dict[str, _Parser] = {}
    for name, command in COMMANDS.items():
        above, _, last = name.rpartition(" ")
        if above not in groups:
            groups[above] = _actions(above, commands[above])
        commands[name] = groups[above].add_parser(last, help=command.help, description=command.help, allow_abbrev=False)
        _add_flags(commands[name], command.flags)
    commands["start"].add_argument("--progress-json", action="store_true", help=argparse.SUPPRESS)
    _add_ways(commands["notify"])
    return parser, commands


def _overview() -> str:
    """All commands by whom they are for."""
    parts = ["The cluster that %%gpu_train cells run on: start and stop it, see who holds what.", ""]
    for title, examples in OVERVIEW.items():
        parts.append(f"{title}:")
        for name, example in examples.items():
            indent = f"  {name:<{_NAME_WIDTH - 2}}"
            parts += textwrap.wrap(
                COMMANDS[name].help, _WIDTH, initial_indent=indent, subsequent_indent=" " * _NAME_WIDTH
            )
            if example != name:
                parts.append(f"{' ' * _NAME_WIDTH}jupyter gpu {example}")
        parts.append("")
    return "\n".join(parts)


def _actions(command: str, parser: _Parser) -> argparse._SubParsersAction[_Parser]:
    """The commands below one that has some; without flags of its own it wants one of them."""
    names = [name.rpartition(" ")[2] for name in COMMANDS if name.startswith(f"{command} ")]
    required = not COMMANDS[command].flags
    return parser.add_subparsers(dest="action", metavar="|".join(names), required=required, parser_class=_Parser)


def _add_flags(parser: _Parser, flags: Mapping[str, Setting]) -> None:
    """Add the flags and words of a command."""
    groups: dict[str, argparse._MutuallyExclusiveGroup] = {}
    needed = {setting.group for setting in flags.values() if setting.required}
    for name, setting in flags.items():
        if setting.group and setting.group not in groups:
            groups[setting.group] = parser.add_mutually_exclusive_group(required=setting.group in needed)
        groups.get(setting.group, parser).add_argument(_written(name, setting), **_grammar(name, setting))


def _written(name: str, setting: Setting) -> str:
    return name if setting.is_word else f"--{name.replace('_', '-')}"


def _grammar(name: str, setting: Setting) -> dict[str, Any]:
    """Arguments of ``add_argument``."""
    if setting.unit is Unit.YES:
        return {"action": "store_true", "help": setting.help}
    default = f" ({setting.default_in_words})" if setting.default_in_words else ""
    where = f"{_written(name, setting)} "
    found = {"metavar": setting.metavar, "help": setting.help + default, "default": setting.default}
    found["type"] = functools.partial(setting.read, where=where)
    if setting.is_word:
        return found if setting.required else {**found, "nargs": "?"}
    if setting.many:
        found |= {"action": setting.many, **({"nargs": "+"} if setting.many == "extend" else {})}
    return {**found, "required": setting.required and not setting.group}


def _add_ways(parser: _Parser) -> None:
    """Flags of ``notify``: each way has one that begins it and one that ends it."""
    mail = parser.add_mutually_exclusive_group()
    mail.add_argument("--email", metavar="ADDRESS", help="send mails to this address")
    mail.add_argument("--no-email", dest="email", action="store_const", const="", help="send no mails")
    hook = parser.add_mutually_exclusive_group()
    hook.add_argument(
        "--webhook",
        action="store_true",
        default=None,
        help="tell a webhook, such as Slack's; its address is asked for (or read from a pipe): it is a secret",
    )
    hook.add_argument("--no-webhook", dest="webhook", action="store_false", help="tell no webhook")
    parser.add_argument("--on", type=_events, metavar="EVENTS", help="of what: some of start,pause,end (all three)")
    parser.add_argument("--test", action="store_true", help="send yourself a message by each way now")


def _events(text: str) -> set[str]:
    words = {word.strip() for word in text.split(",")}
    if not words <= {"start", "pause", "end"}:
        hint = "write start, pause, end, or several with commas between them; --no-email ends the mails"
        raise OptionError(f"--on {text}: not known", hint=hint)
    return words


def _check_action(word: str | None) -> None:
    if word is not None and word not in RUNS_ACTIONS:
        close = difflib.get_close_matches(word, list(RUNS_ACTIONS), n=1)
        example = f"runs {close[0]} RUN" if close else f"runs show {word}"
        raise OptionError(f"runs {word}: no such command", hint=f"did you mean `jupyter gpu {example}`?")


def _check_command(words: Sequence[str], commands: dict[str, _Parser]) -> None:
    command = words[0] if words else ""
    if not command or command.startswith("-") or command in commands:
        return
    begun = [name for name in commands if name.startswith(command)]
    close = begun or difflib.get_close_matches(command, commands, n=1)
    known = ", ".join(name for name in commands if " " not in name)
    hint = f"did you mean `jupyter gpu {close[0]}`?" if close else f"commands: {known}"
    raise OptionError(f"{command}: no such command", hint=hint)


def _refuse_rest(rest: Sequence[str], parser: argparse.ArgumentParser) -> NoReturn:
    word = rest[0].split("=")[0]
    if not word.startswith("-"):
        raise OptionError(f"{word}: not expected here", hint=f"see `{parser.prog} --help`")
    known = [option for action in parser._actions for option in action.option_strings]
    close = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"see `{parser.prog} --help`"
    raise OptionError(f"{word}: no such option of `{parser.prog}`", hint=hint)
