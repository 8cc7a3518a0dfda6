"""The grammar of ``jupyter gpu token create|list|revoke``."""

from __future__ import annotations

import argparse
from typing import TypeVar

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


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", required=True, metavar="U", help="whose token it is; runs belong to this name")
    parser.add_argument("--role", default="user", metavar="ROLE", help="user (own runs) or admin (everything) (user)")
    parser.add_argument("--expires", default="30d", metavar="TIME", help="such as 12h or 30d, or `never` (30d)")
    parser.add_argument("--label", default="", metavar="L", help="a note for `token list`")
    parser.add_argument("--out", metavar="FILE", help="write the token into this new file (0600), show nothing")
