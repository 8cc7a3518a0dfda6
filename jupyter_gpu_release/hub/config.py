"""The call in ``jupyterhub_config.py``: adds the service, and the variables with which servers find it."""

from __future__ import annotations

import os
import sys
from typing import Any

from ..checks.package import require_extra
from ..client.discovery import HUB_SERVICE, Target
from ..errors import OptionError
from ..settings.table import HUB

SERVICE = "gpu-tokens"
LIFETIME_VARIABLE = HUB["lifetime"].variable


def hand_out_tokens(
    config: Any,
    gateway: str,
    token_file: str,
    *,
    ca_file: str = "",
    lifetime: str = HUB["lifetime"].default,
    url: str = HUB["url"].default,
    allow_plain_text: bool = False,
) -> None:
    """Give every server of this JupyterHub its user's own token for the GPU gateway, and renew it.

    Parameters
    ----------
    config : traitlets.config.Config
        The ``c`` of ``jupyterhub_config.py``.
    gateway : str
        Address of the gateway, as servers reach it.
    token_file : str
        File (mode 0600) with an admin's token. Only the service reads it, as the Hub's own user.
    ca_file : str
        PEM file with the authorities that may have signed the gateway's certificate, where Hub and servers see it.
    lifetime : str
        How long a token is good; it is renewed after half of that.
    url : str
        Where the service listens, as servers reach it: its host is a name of the Hub's machine or container.
    allow_plain_text : bool
        ``gateway`` and ``url`` may be ``http://`` beyond this machine: in a network that you trust.

    Raises
    ------
    OptionError
        Tokens would travel in plain text, and nobody has said that they may.
    ClusterError
        Packages that the service needs are not installed in the Hub's environment.
    """
    require_extra("hub", "the service for tokens")
    if not allow_plain_text:
        _check_tls("gateway", gateway, "write https://")
        _check_tls("url", url, f"leave it out, and name a proxy's https:// in c.Spawner.environment['{HUB_SERVICE}']")
    lifetime_s = HUB["lifetime"].read(lifetime, "lifetime=")
    known = {"JUPYTER_GPU_URL": gateway, **({"JUPYTER_GPU_CA_FILE": ca_file} if ca_file else {})}
    own = {"JUPYTER_GPU_TOKEN_FILE": os.path.abspath(token_file), LIFETIME_VARIABLE: str(lifetime_s)}
    service = {
        "name": SERVICE,
        "url": url,
        "command": [sys.executable, "-m", "jupyter_gpu_release.hub.service"],
        "environment": {**known, **own},
        "display": False,
    }
    config.JupyterHub.services.append(service)
    config.Spawner.environment.update({**known, HUB_SERVICE: f"{url.rstrip('/')}/services/{SERVICE}/token"})


def _check_tls(argument: str, address: str, mend: str) -> None:
    if not address.lower().startswith("https:") and not Target(address, "").is_loopback:
        raise OptionError(
            f"{argument}={address!r}: without TLS, tokens could be read on the way",
            hint=f"{mend}; in a network that you trust: hand_out_tokens(…, allow_plain_text=True)",
        )
