"""A pod of our Helm chart: what it needs before it is a part of the cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from .finding import OK, Finding, broken, note, ok
from .network import PORT_S, check_network

#: the chart gives it to each of its pods: ``HOST:PORT`` of the head's service
POD_HEAD = "JUPYTER_GPU_POD_HEAD"
_RAY_TOKEN = "RAY_AUTH_TOKEN_PATH"
#: NVIDIA's device plugin names the GPUs of a container in it; these words name none
_GIVEN, _NO_GPUS = "NVIDIA_VISIBLE_DEVICES", ("", "all", "none", "void")
_HEAD_MEND = (
    "is the head's pod up? `kubectl get pod -l ray.io/node-type=head`; its service has this name, "
    "and network policies have to let pods of the cluster reach each other"
)


def is_pod(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell if this process is in a pod of the chart."""
    return POD_HEAD in environment


def check_pod(gpus: int, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Ray's token, the way to the head, the pod's GPUs; ``gpus``: those that the driver shows. Elsewhere nothing."""
    if not is_pod(environment):
        return
    yield ok("pod", f"{socket.gethostname()}, a pod of the Helm chart (uid {os.geteuid()}, gid {os.getegid()})")
    yield _check_ray_token(environment.get(_RAY_TOKEN, ""))
    way = check_network(f"tcp://{environment[POD_HEAD]}", PORT_S)
    yield msgspec.structs.replace(way, hint="" if way.level == OK else _HEAD_MEND)
    given = environment.get(_GIVEN, "")
    count = 0 if given in _NO_GPUS else len(given.split(","))
    if count > gpus:
        said = f"the device plugin gave this container {count} GPUs, the driver shows {gpus} of them"
        yield broken(
            "pod", said, "NVIDIA's container toolkit has to be this node's runtime (the GPU operator sees to it)"
        )


def without_gateway() -> Finding:
    """Tell where a pod that knows no gateway stands."""
    if "JUPYTER_GPU_HOME" in os.environ:
        mend = "`kubectl logs -c gateway` of this pod has what `start` says; it tries again every 2 s"
        return broken("gateway", "it has not been put on this pod's Ray yet", mend)
    mend = "the rest of the cluster: `jupyter-gpu doctor` in the head's container `gateway`"
    return note("gateway", "this pod has no token of it, as cells run on nodes", mend)


def _check_ray_token(named: str) -> Finding:
    mend = "the secret that tokens.existingSecret names needs the key `ray-token`; pods read it when they start"
    try:
        text = Path(named).read_text().strip() if named else ""
    except OSError as error:
        return broken("token", f"Ray's token cannot be read: {named}: {error.strerror}", mend)
    if not text:
        return broken("token", f"Ray's token is empty ({named or _RAY_TOKEN + ' is not set'})", mend)
    return ok("token", f"{named} has Ray's token")
