"""``token create``, ``list`` and ``revoke``: asked of the gateway, so they work for one far away, too."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from ...client.discovery import Target
from ...client.rest import LOOPBACK, GatewayClient
from ...errors import OptionError, StoreError
from ...protocol.admin import TokenRequest, TokenRevocation, TokenRow
from ...protocol.config import url_for_others
from ...units import parse_seconds
from ..connect import open_gateway, reachable_gateway
from ..runs import print_json
from ..tables import output_console, print_tokens


def token(arguments: argparse.Namespace) -> int:
    """``jupyter gpu token …``."""
    work: dict[str, Callable[[argparse.Namespace], None]] = {"create": _create, "list": _list, "revoke": _revoke}
    work[arguments.action](arguments)
    return 0


def _create(arguments: argparse.Namespace) -> None:
    """The secret goes to standard output (or the file) alone, so that it can be piped; the rest to standard error."""
    expires_s = _life_s(arguments.expires)
    asked = TokenRequest(arguments.user, arguments.role, expires_s, arguments.label)
    path = Path(arguments.out).expanduser() if arguments.out else None
    descriptor = None if path is None else _new_file(path)  # before there is a secret that could be lost
    target = reachable_gateway()
    with GatewayClient.for_target(target) as gateway:
        try:
            address = _address_for_others(gateway, target)
            made = _fill(gateway, asked, path, descriptor)
        except BaseException:
            if path is not None:
                path.unlink(missing_ok=True)
            raise
    until = "never expires" if made.expires_at is None else f"expires {_day(made.expires_at)}"
    sys.stderr.write(f"Token {made.id} for {made.user} ({made.role}), {until}.\n")
    if path is None:
        sys.stderr.write("It is not shown again. Keep it in a file (chmod 600).\n")
    else:
        sys.stderr.write(f"It is in {path}; give {made.user} the file by a way that nobody else reads.\n")
    sys.stderr.write(_how_to_use(address, path))


def _life_s(text: str) -> float | None:
    if text == "never":
        return None
    if text.strip().isdecimal() and int(text):  # it would be seconds, and days are meant
        raise OptionError(f"--expires {text}: {text} of what?", hint=f"write {text}d for days, {text}h for hours")
    return parse_seconds(text, option="--expires")


def _fill(gateway: GatewayClient, asked: TokenRequest, path: Path | None, descriptor: int | None) -> TokenRow:
    """Have the token made and hand it over; one that cannot be handed over is revoked."""
    issued = gateway.create_token(asked)
    try:
        if descriptor is None:
            sys.stdout.write(issued.secret + "\n")
            sys.stdout.flush()
        else:
            with os.fdopen(descriptor, "w") as file:
                file.write(issued.secret + "\n")
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        gateway.revoke_tokens(TokenRevocation(id=issued.token.id))
        where = path or "standard output"
        raise StoreError(f"cannot write the token to {where}: {error.strerror}; it is revoked") from error
    return issued.token


def _new_file(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise OptionError(f"--out {path}: the file is there already", hint="name a new file") from None
    except OSError as error:
        raise StoreError(f"cannot make the file {path}: {error.strerror}", hint="name another file") from error


def _address_for_others(gateway: GatewayClient, target: Target) -> str:
    """The address that this command has used; on the gateway's own machine the one that the gateway has for others."""
    is_own = target.connection is not None or (httpx.URL(gateway.url).host or "") in LOOPBACK
    return gateway.status().gateway.url if is_own else gateway.url


def _how_to_use(url: str, path: Path | None) -> str:
    """Tell the token's user what to set."""
    url = url_for_others(url, socket.gethostname())
    text = "Its user sets for kernels and commands\n"
    text += f"  JUPYTER_GPU_URL={url}\n  JUPYTER_GPU_TOKEN_FILE={path or 'FILE'}\n"
    if url.startswith("https:"):
        text += "  JUPYTER_GPU_CA_FILE=FILE   if an authority of your own signed the certificate\n"
    if (httpx.URL(url).host or "") in LOOPBACK:
        text += "That address is this machine's alone; `jupyter gpu start --host ADDRESS` lets others in.\n"
    return text


def _list(arguments: argparse.Namespace) -> None:
    with open_gateway() as gateway:
        document = gateway.tokens()
    if arguments.json:
        print_json(document)
    else:
        print_tokens(output_console(), document.tokens)


def _revoke(arguments: argparse.Namespace) -> None:
    which = TokenRevocation(user=arguments.user) if arguments.user else TokenRevocation(id=arguments.id)
    with open_gateway() as gateway:
        revoked = gateway.revoke_tokens(which).tokens
    for row in revoked:
        sys.stdout.write(f"Token {row.id} of {row.user} is revoked; connections that it opened are closed.\n")


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
