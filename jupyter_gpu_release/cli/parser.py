"""Grammar, "did you mean"."""

from __future__ import annotations

import argparse
import difflib
import functools
from collections.abc import Sequence
from typing import NoReturn, TypeVar

from .._version import __version__
from ..errors import OptionError
from ..settings.setting import Unit
from ..settings.table import FLAGS

Parser = TypeVar("Parser", bound=argparse.ArgumentParser)


def add_token_commands(parser: Parser) -> dict[str, Parser]:
    """Add the three commands to ``token``; returns their parsers by their full names."""
    group = parser.add_subparsers(dest="action", metavar="create|list|revoke", required=True, parser_class=type(parser))
    commands: dict[str, Parser] = {}
    for name, text in (
        ("create", "make a token; it is shown once, or written into a file"),
        ("list", "the tokens: whose, since when, until when, last used"),
        ("revoke", "refuse a token from now on and close what it opened"),
    ):
        commands[f"token {name}"] = group.add_parser(name, help=text, description=text, allow_abbrev=False)
    _add_create(commands["token create"])
    commands["token list"].add_argument("--json", action="store_true", help="print one JSON document")
    revoke = commands["token revoke"].add_mutually_exclusive_group(required=True)
    revoke.add_argument("id", nargs="?", metavar="ID", help="the token's id, as `token list` shows it")
    revoke.add_argument("--user", metavar="U", help="all tokens of this user")
    return commands


def add_node_commands(parser: Parser) -> dict[str, Parser]:
    """Add the commands to ``nodes``; returns their parsers by their full names."""
    parser.add_argument("--json", action="store_true", help="print one JSON document (schema_version 1)")
    group = parser.add_subparsers(dest="action", metavar="drain|resume", parser_class=type(parser))
    commands: dict[str, Parser] = {}
    for name, text in (
        ("drain", "give a node or a GPU no new runs; those on it go on to their end"),
        ("resume", "give runs to a node or a GPU again"),
    ):
        commands[f"nodes {name}"] = group.add_parser(name, help=text, description=text, allow_abbrev=False)
        commands[f"nodes {name}"].add_argument(
            "node",
            metavar="NODE[:GPU]",
            help="its host, or the beginning of its id; with the GPU's number that GPU only",
        )
    drain = commands["nodes drain"]
    drain.add_argument("--reason", default="", metavar="TEXT", help="shown to those who wait")
    drain.add_argument("--wait", action="store_true", help="return when nothing runs there any more")
    return commands


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", required=True, metavar="U", help="whose token it is; runs belong to this name")
    _add_settings("token create", parser)
    parser.add_argument("--label", default="", metavar="L", help="a note for `token list`")
    parser.add_argument("--out", metavar="FILE", help="write the token into this new file (0600), show nothing")


RUNS_ACTIONS = ("show", "pin", "unpin", "export", "import")

_EPILOG = """\
exit status: 0 done · 1 it did not work (the message says why and what to do)
             2 the command was not understood · 130 interrupted
"""


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


def command_helps() -> dict[str, str]:
    """The help text that ``--help`` prints for each command (for the documentation)."""
    return {name: parser.format_help() for name, parser in build()[1].items()}


def build() -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of all commands, and those of each by its full name."""
    parser = _Parser(
        prog="jupyter gpu",
        description="The cluster that %%gpu_train cells run on: start and stop it, see who holds what.",
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jupyter_gpu_release {__version__}")
    group = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    commands: dict[str, _Parser] = {}

    def add(name: str, text: str) -> _Parser:
        commands[name] = group.add_parser(name, help=text, description=text, allow_abbrev=False)
        return commands[name]

    start = add("start", "start a cluster on this machine, or put the gateway on an existing Ray cluster")
    _add_settings("start", start)
    start.add_argument("--progress-json", action="store_true", help=argparse.SUPPRESS)
    stop = add("stop", "end the cluster of this machine and every process that it started")
    how = stop.add_mutually_exclusive_group()
    how.add_argument("--yes", action="store_true", help="do not ask, whatever runs there: for scripts")
    how.add_argument("--drain", action="store_true", help="first wait until what runs has ended; nothing new begins")
    _add_json(add("status", "who holds which GPU, who waits and why"))
    _add_json(add("queues", "the queues: what each is guaranteed, uses and is due, and who waits in it"))
    _add_runs(add("runs", "the runs so far, newest first; `runs show RUN` for one of them"))
    add("cancel", "end a run: interrupt it, keep what it made so far, free its GPUs").add_argument(
        "run", metavar="RUN", help="its id, or `last`: the newest that is not over"
    )
    add("preempt", "ask a restartable run to step aside: it is saved, frees its GPUs, and goes on later").add_argument(
        "run", metavar="RUN", help="its id, or `last`: the newest that is not over"
    )
    commands |= add_token_commands(add("token", "tokens of the gateway's users: make, list, revoke (for admins)"))
    commands |= add_node_commands(add("nodes", "the nodes; take one out for maintenance and in again (for admins)"))
    _add_notify(add("notify", "how you are told of your detached runs: by mail, Slack or another webhook"))
    _add_gc(add("gc", "remove old results from the store, and what nothing refers to any more"))
    add("attach", "show a run's output from its beginning, then live; Ctrl-C leaves it going on").add_argument(
        "run", metavar="RUN", help="its id, or `last`: the newest"
    )
    _add_simulate(add("simulate", "what the scheduler would do with a cluster, queues and runs that are written down"))
    advise = add(
        "advise", "say which cells of a notebook are worth a GPU cell, what would travel, what GPU time that saves"
    )
    advise.add_argument("notebook", metavar="NOTEBOOK", help="an .ipynb file; where it was run with times, they count")
    advise.add_argument("--write", metavar="FILE", help="write a copy with the magics above those cells")
    _add_json(advise)
    add("docs", "show a page of the documentation; without PAGE, which there are").add_argument(
        "page", nargs="?", metavar="PAGE", help="such as tutorial, user-guide, writing-a-cell"
    )
    _add_json(add("doctor", "check everything and say what to do about what is wrong"))
    return parser, commands


def _add_settings(command: str, parser: argparse.ArgumentParser) -> None:
    """Add the flags that the table of settings has for a command."""
    groups: dict[str, argparse._MutuallyExclusiveGroup] = {}
    for name, setting in FLAGS[command].items():
        flag = f"--{name.replace('_', '-')}"
        if setting.group and setting.group not in groups:
            groups[setting.group] = parser.add_mutually_exclusive_group()
        target = groups.get(setting.group, parser)
        if setting.unit is Unit.YES:
            target.add_argument(flag, action="store_true", help=setting.help)
            continue
        target.add_argument(
            flag,
            type=functools.partial(setting.read, where=f"{flag} "),
            default=setting.default,
            metavar=setting.metavar,
            help=f"{setting.help} ({setting.default_in_words})",
        )


def _add_json(parser: _Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document (schema_version 1)")


def _add_runs(parser: _Parser) -> None:
    _add_json(parser)
    _add_settings("runs", parser)
    parser.add_argument(
        "action",
        nargs="?",
        type=_runs_action,
        metavar="ACTION",
        help="show one run; pin it (its results are never collected), or unpin it; export it to FILE; import FILE",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="which run: its id, or `last` (import: the file)")
    parser.add_argument("file", nargs="?", metavar="FILE", help="export to it (RUN.jgr.tar)")
    parser.add_argument(
        "--trust", action="store_true", help="import what was not exported here: loading it runs its code"
    )
    parser.add_argument("--mine", action="store_true", help="only your own; of others' runs less is shown")


def _add_simulate(parser: _Parser) -> None:
    _add_json(parser)
    parser.add_argument("trace", nargs="?", metavar="TRACE.csv", help="jobs to replay")
    parser.add_argument("--from-ledger", action="store_true", help="replay this cluster's own runs (the newest 10,000)")
    parser.add_argument("--cluster", metavar="FILE", help="YAML: the nodes to replay them on")
    parser.add_argument(
        "--queues", action="append", default=[], metavar="FILE", help="a queues file; each one is a column of its own"
    )
    parser.add_argument(
        "--policy", nargs="+", action="extend", default=[], metavar="NAME", help="policies to compare (all)"
    )
    _add_settings("simulate", parser)
    parser.add_argument("--out", metavar="DIR", help="write tables and charts there (HTML, PNG, JSON)")
    parser.add_argument("--scenario", metavar="FILE", help="JSON: a small cluster and its runs, instead")


def _add_notify(parser: _Parser) -> None:
    _add_json(parser)
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


def _add_gc(parser: _Parser) -> None:
    _add_json(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would go, and why")
    _add_settings("gc", parser)


def _runs_action(word: str) -> str:
    if word not in RUNS_ACTIONS:
        close = difflib.get_close_matches(word, list(RUNS_ACTIONS), n=1)
        example = f"runs {close[0]} RUN" if close else f"runs show {word}"
        raise OptionError(f"runs {word}: no such command", hint=f"did you mean `jupyter gpu {example}`?")
    return word


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
