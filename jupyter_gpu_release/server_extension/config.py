"""``c.GpuRelease.…`` as the Jupyter server reads it: which gateway to ask."""

from __future__ import annotations

from traitlets import Any, Bool, Enum, Float, List, Unicode
from traitlets.config import LoggingConfigurable

FILE_NAME = "jupyter_gpu_release_config"
#: kernels that have this in their environment as 0 do not load the magics by themselves (``kernel/startup.py``)
NOT_AUTOMATIC = "JUPYTER_GPU_AUTOMATIC"


class GpuRelease(LoggingConfigurable):
    """Settings for the gateway that the server asks. The same names, in the same files, as the kernels read."""

    url = Unicode(
        "",
        help="Address of the team's gateway, such as https://gpu.example.org:8265. Empty: this machine's own cluster, "
        "when there is one. JUPYTER_GPU_URL wins.",
    ).tag(config=True)
    token_file = Unicode(
        "",
        help="File (mode 0600) with the token for the gateway. It stays in the server: browsers never get it. Empty: "
        "the one of this machine's own cluster. JUPYTER_GPU_TOKEN wins.",
    ).tag(config=True)
    user_tokens = Unicode(
        "",
        help="Folder of token files (mode 0600) for a server with several users: the file named like a user of Jupyter "
        "holds the token with which the gateway is asked in that user's name. Who has none there sees and does nothing "
        "on the cluster through this server. Empty: everybody who may use this server speaks with its own token.",
    ).tag(config=True)
    ca_file = Unicode(
        "",
        help="PEM file with the authorities that may have signed the gateway's certificate, besides those that this "
        "machine trusts. JUPYTER_GPU_CA_FILE wins.",
    ).tag(config=True)
    store = Unicode("", help="Root of the shared filesystem. Empty: the path that the gateway names.").tag(config=True)
    auto_start = Enum(
        ["local", "never"],
        "local",
        help="`local`: while no cluster is there, the sidebar has a button that starts this machine's own (and a GPU "
        "cell starts it, too); `never`: it has none. There is no button where `url` or `user_tokens` is set.",
    ).tag(config=True)
    start_options = List(
        Unicode(), help="Options of `jupyter gpu start` for that start, such as ['--simulated-gpus', '2']."
    ).tag(config=True)
    defaults = Any(help="For kernels: default options of %%gpu_train.").tag(config=True)
    implicit_send_max = Any(help="For kernels: how much goes along with a cell that looks names up by text.").tag(
        config=True
    )
    automatic = Bool(
        True,
        help="Whether the Python kernels of this server load the magics when they start, without %load_ext (where the "
        "package is installed in the kernel's environment).",
    ).tag(config=True)
    poll_interval = Float(
        2.0,
        min=0.2,
        help="Seconds after which figures of what is held are asked for anew (0.2 and more); changes are told at once. "
        "A gateway that cannot tell them is asked this often.",
    ).tag(config=True)
    max_backoff = Float(
        60.0, min=1.0, help="Seconds between two tries at most while the gateway does not answer (from 1 s, doubled)."
    ).tag(config=True)
