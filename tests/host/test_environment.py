"""A cluster's processes get what is named for them, not what was in the shell that started it."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.host.environment import (
    MORE,
    MOST_BYTES,
    MOST_BYTES_IN_ALL,
    OwnVariables,
    for_cells,
    for_cluster,
    installer_variables,
    may_travel,
    own_variables,
    stays_here,
)


def test_what_programs_need_goes_along() -> None:
    usual = {
        "PATH": "/bin",
        "HOME": "/home/ann",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "TZ": "UTC",
        "TMPDIR": "/tmp",
        "LD_LIBRARY_PATH": "/lib",
        "CUDA_VISIBLE_DEVICES": "0",
        "CUDA_HOME": "/cuda",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "VIRTUAL_ENV": "/venv",
        "CONDA_PREFIX": "/conda",
        "PYTHONPATH": "/mine",
        "PYTHONHASHSEED": "7",
        "HF_HOME": "/cache",
        "TORCH_HOME": "/torch",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "4",
        "https_proxy": "http://proxy:3128",
        "JUPYTER_GPU_RUNTIME": "/tmp",
        "JUPYTER_GPU_TOKEN_FILE": "/home/ann/token",
    }
    assert for_cluster(usual) == usual


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_API_KEY",
        "WANDB_API_KEY",
        "HF_TOKEN",
        "HUGGINGFACE_TOKEN",
        "DATABASE_URL",
        "SSH_AUTH_SOCK",
        "JUPYTERHUB_API_TOKEN",
        "JPY_API_TOKEN",
        "KUBECONFIG",
        "JUPYTER_GPU_TOKEN",
        "JUPYTER_GPU_URL",
        "JUPYTER_GPU_KERNEL",
        "RAY_ADDRESS",
        "ANYTHING",
    ],
)
def test_the_rest_does_not(name: str) -> None:
    assert for_cluster({name: "value"}) == {}


def test_a_proxy_with_a_password_is_a_secret() -> None:
    assert for_cluster({"HTTPS_PROXY": "http://ann:pass@proxy:3128"}) == {}


def test_the_operator_names_more() -> None:
    more = {MORE: " WANDB_*, DATA_ROOT,HF_TOKEN,RAY_ADDRESS ", "WANDB_API_KEY": "w", "DATA_ROOT": "/d", "HF_TOKEN": "h"}
    assert for_cluster(more | {"DATA": "x", "RAY_ADDRESS": "auto"}) == more


def test_a_notebooks_own_variables_travel_but_for_secrets_and_large_ones() -> None:
    before = {"SAME": "1", "CHANGED": "1", "GONE": "1"}
    now = {"SAME": "1", "CHANGED": "2", "NEW": "", "NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "", "CHOSEN": "1"}
    now |= {"WANDB_API_KEY": "0123456789abcdef", "DB": "postgres://ann:pass@db/x", "LARGE": "x" * MOST_BYTES}
    values = {"CHANGED": "2", "GONE": None, "NCCL_DEBUG": "INFO", "NEW": ""}
    assert own_variables(now, before, but={"CHOSEN"}) == OwnVariables(values, ["DB", "WANDB_API_KEY"], ["LARGE"])
    fit = MOST_BYTES_IN_ALL // MOST_BYTES
    many = own_variables({f"V{at:03}": "x" * (MOST_BYTES - 4) for at in range(fit + 1)}, {})
    assert (len(many.values), many.large) == (fit, [f"V{fit:03}"])


def test_cells_have_the_machines_cores_and_the_clusters_marks() -> None:
    of_agent = {"PATH": "/bin", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "AWS_SECRET": "x", "HF_HOME": "/hf"}
    assert for_cells(of_agent, {"JUPYTER_GPU_CLUSTER": "c"}, "7") == {
        "PATH": "/bin",
        "HF_HOME": "/hf",
        "JUPYTER_GPU_CLUSTER": "c",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONHASHSEED": "7",
    }


@pytest.mark.parametrize(
    ("index", "wheels", "told"),
    [
        ("", [], set()),
        ("https://pypi.example.org/simple", [], {"PIP_INDEX_URL", "UV_DEFAULT_INDEX"}),
        ("none", ["/a", "/b"], {"PIP_NO_INDEX", "UV_NO_INDEX", "PIP_FIND_LINKS", "UV_FIND_LINKS"}),
    ],
)
def test_a_cells_pip_takes_packages_from_where_the_operator_says(index: str, wheels: list[str], told: set[str]) -> None:
    found = installer_variables(index, wheels)
    assert found.keys() == told
    assert found.get("PIP_INDEX_URL", "none") == (index or "none")
    assert found.get("PIP_FIND_LINKS", "").split() == wheels


def test_what_belongs_to_a_machine_a_process_or_a_rank_does_not_travel() -> None:
    stay = ("PATH", "LD_PRELOAD", "HOME", "CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "RANK", "MASTER_ADDR", "TERM")
    assert not [name for name in stay if may_travel(name)]
    assert [
        name for name in ("NCCL_DEBUG", "CUDA_LAUNCH_BLOCKING", "MY_OWN", "WANDB_PROJECT") if not may_travel(name)
    ] == []
    assert stays_here("A", "x" * MOST_BYTES)
    assert stays_here("DB_PASSWORD", "s3cret")
    assert stays_here("A", "http://ann:pw@host/x")
    assert not stays_here("A", "x" * (MOST_BYTES - 1))
