"""The documentation site: its own search finds the page for each question that people ask, in each wording."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect
from sidebar_bed import opened

REPOSITORY = Path(__file__).parents[2]
_FIRST = 3
#: question of a user or an operator → the pages that answer it, and keywords, each of which finds one of them
QUESTIONS: dict[str, tuple[set[str], tuple[str, ...]]] = {
    "my own conda environment": ({"start/install", "use/packages"}, ("conda", "conda environment", "own venv")),
    "the cost of a cell that takes 2 s": ({"start/first-cell"}, ("cost short cell", "cost of a cell that takes 2 s")),
    "Accelerate on two GPUs": ({"use/gang-frameworks"}, ("accelerate two GPUs", "accelerate ranks")),
    "DDP on two GPUs": (
        {"use/gangs"},
        ("DDP", "PyTorch DDP", "DistributedDataParallel", "torchrun ranks", "train many GPUs"),
    ),
    "50 to 500 GB of data": ({"use/data"}, ("num_workers", "dev/shm large data", "500 GB")),
    "caches": ({"use/data"}, ("cache HF_HOME", "shared cache folder")),
    "VS Code": ({"vscode"}, ("VS Code", "pylance")),
    "Colab": ({"start/colab"}, ("colab", "colab notebook")),
    "JupyterHub": ({"operate/jupyterhub"}, ("jupyterhub tokens", "hub culler")),
    "Slurm": ({"start/slurm", "operate/slurm", "start/platforms"}, ("slurm", "slurm job")),
    "Kubernetes": ({"kubernetes"}, ("kubernetes", "helm chart")),
    "uninstall": ({"start/install", "operate/uninstall"}, ("uninstall", "remove package")),
    "versions of Ray and Python": ({"versions"}, ("versions that fit", "ray python versions")),
    "safety": ({"start/platforms", "operate/secure", "understand/trust"}, ("is it safe", "security", "trust team")),
    "Mac or Windows as a client": ({"start/platforms"}, ("windows mac client", "windows")),
    "AMD": ({"start/platforms"}, ("AMD", "amd gpus")),
    "MIG": ({"operate/mig", "start/platforms"}, ("MIG", "mig instance")),
    "half a GPU": (
        {"use/parts", "start/platforms"},
        ("half a GPU", "parts of a GPU", "fractional GPU", "fraction of a GPU"),
    ),
    "TensorBoard, W&B, MLflow": ({"use/trackers"}, ("tensorboard", "mlflow", "wandb")),
    "%pip install in a cell": ({"use/packages"}, ("pip install cell", "package missing")),
    "delete old results": ({"use/results", "operate/old-results"}, ("delete old results", "remove old results")),
    "how much is mine": ({"use/results"}, ("how much is mine", "gc mine sizes")),
    "report a bug": ({"use/report"}, ("report bug", "issue tracker")),
    "why a cell waits": ({"use/queues"}, ("why wait", "queue priority")),
    "the GPU is not used fully": (
        {"use/gpus"},
        ("GPU used fully", "GPU busy waiting for data", "utilization", "GPU utilisation"),
    ),
    "the cluster is not used fully": ({"operate/unused-gpus"}, ("unused GPUs", "cluster GPUs not used fully")),
    "results after the notebook is closed": ({"use/come-back"}, ("attach run", "load results")),
    "training in the background": ({"use/background"}, ("async background", "train while the kernel is free")),
    "preemption": ({"use/restartable"}, ("preempted resumed", "restartable cell")),
    "keeping a GPU": ({"use/keep"}, ("keep GPU", "keep next cell")),
    "a certificate": ({"operate/certificates"}, ("certificate", "TLS certificate authority")),
    "a team's cluster": ({"operate/team"}, ("set up team cluster", "cluster for a team")),
    "upgrade while cells run": ({"operate/upgrade"}, ("upgrade", "upgrade gateway")),
    "backup": ({"operate/backup"}, ("backup", "restore ledger")),
    "a message before a cell begins": (
        {"use/troubleshooting", "use/values"},
        ("secret held back", "troubleshooting message"),
    ),
    "out of memory": (
        {"use/failed-cells", "use/faq-runs"},
        ("out of memory", "OOM", "CUDA out of memory", "memory limit message"),
    ),
    "a token that is not known": (
        {"use/gateway-messages", "operate/tokens"},
        ("gateway does not know this token", "token expired"),
    ),
    "another queues file, tried on old runs": ({"operate/simulator"}, ("simulator", "replay runs policy")),
    "the rule of the queue's order": ({"understand/expected-work"}, ("expected work", "overtaken bound gangs")),
    "search for parameters": ({"use/sweeps"}, ("sweep parameters", "optuna trials")),
    "many short calls": ({"use/many-calls"}, ("launch_map", "many short calls")),
    "a node that dies": ({"use/node-failures"}, ("node dies retries", "try again when a node dies")),
    "a mail when it ends": ({"use/notifications"}, ("mail when a run ends", "slack webhook notify")),
    "an idle kernel's memory": ({"use/idle-kernels", "idle-policy"}, ("idle kernel", "free memory kernel holds")),
    "a debugger": ({"start/faq"}, ("debugger", "breakpoint")),
    "the same training again": ({"use/cache"}, ("cache cell", "train twice")),
    "random seeds": ({"use/values"}, ("random numbers seed", "names travel random")),
    "interrupt or cancel": ({"use/stop"}, ("interrupt cell", "stop a cell")),
    "nginx": ({"operate/proxy"}, ("nginx proxy", "websocket proxy")),
    "Prometheus": ({"operate/monitor"}, ("prometheus", "grafana dashboard")),
    "a node's maintenance": ({"operate/drain"}, ("drain node", "node maintenance")),
    "an assistant": ({"use/assistants", "operate/assistants"}, ("mcp assistant", "assistant")),
    "two users on one GPU": ({"use/parts"}, ("share a GPU", "part of a GPU memory limit")),
    "prices": ({"operate/queues"}, ("prices rates", "price GPU hour")),
    # asked by those who know Slurm, Ray, JupyterHub and Kueue
    "a job array": ({"start/coming-from"}, ("job array", "slurm job array")),
    "the history of jobs": ({"start/coming-from"}, ("history of past jobs", "sacct")),
    "to submit and to cancel a job": ({"start/coming-from"}, ("sbatch srun", "scancel")),
    "fair share": (
        {"understand/order-of-the-queue", "understand/expected-work", "scheduling"},
        ("fair share", "my fair share"),
    ),
    "a reservation": ({"start/coming-from", "operate/questions"}, ("reservation workshop", "reserve GPUs workshop")),
    "ssh to a node": ({"start/coming-from"}, ("ssh node", "ssh job node")),
    "Ray's dashboard": ({"start/coming-from", "operate/one-machine"}, ("ray dashboard", "dashboard")),
    "a runtime environment of Ray": ({"start/coming-from"}, ("runtime_env", "ray runtime_env packages")),
    "Ray Tune": ({"start/coming-from"}, ("ray tune", "tune sweep")),
    "an actor that keeps a model": ({"start/coming-from"}, ("actor model GPU", "actor keeps model")),
    "a kernel without a GPU": ({"start/coming-from"}, ("cuda.is_available False", "is_available kernel")),
    "output after a refresh": ({"start/coming-from"}, ("output lost refresh", "refresh page output")),
    "an image for a job": ({"start/coming-from", "kubernetes"}, ("docker image", "image for a course")),
    "borrowing in a cohort": ({"start/coming-from", "scheduling/other-schedulers"}, ("cohort borrowing", "borrow")),
    "a gang is admitted as a whole": ({"start/coming-from"}, ("all-or-nothing", "gang admission")),
    "a firewall": ({"operate/other-machines"}, ("firewall ports", "open firewall")),
    "a collective that hangs": ({"use/gang-failures"}, ("NCCL hang", "NCCL timeout")),
    "single sign-on": ({"operate/questions"}, ("LDAP", "single sign-on")),
    "no internet": ({"operate/questions"}, ("air-gapped", "without internet")),
    "a cluster without a Ray cluster": (
        {"operate/several-machines"},
        ("several machines", "several machines ray head"),
    ),
    # and in the trackers of Kubeflow, KAI (Run:ai), batchspawner, Colab and others
    "inference": ({"use/faq-runs"}, ("inference", "batch inference", "vLLM", "serve vLLM")),
    "the licence": ({"start/faq"}, ("licence", "license", "Apache license")),
    "DeepSpeed": ({"use/gang-frameworks"}, ("deepspeed", "deepspeed launcher")),
    "a kernel that died": ({"use/faq-runs"}, ("kernel died", "kernel dies")),
    "a connection that is lost": ({"use/faq-runs"}, ("connection lost training", "output lost browser closed")),
    "a pod that is pending": ({"kubernetes/gpus"}, ("pod pending", "Insufficient nvidia.com/gpu")),
    "nodes with a taint": ({"kubernetes/gpus"}, ("GPU taint toleration", "taint")),
    "how a GPU is shared": ({"use/parts"}, ("time slicing", "MPS", "vGPU")),
    "a server as a job of Slurm's": ({"start/coming-from"}, ("batchspawner", "SlurmSpawner")),
    "a container": ({"start/coming-from"}, ("apptainer singularity", "docker")),
    "Kubeflow": ({"start/coming-from"}, ("kubeflow", "kubeflow notebook")),
    "Run:ai": ({"start/coming-from"}, ("run:ai fractions", "fractions Run:ai")),
    "an instance that the cloud takes away": ({"use/node-failures"}, ("spot instances", "preemptible spot")),
    "object storage": ({"use/data"}, ("S3", "object storage")),
    "no shared filesystem": ({"operate/no-shared-store"}, ("no shared filesystem", "without shared folder")),
    "how much is whose": ({"operate/old-results"}, ("how much is whose", "results users quota")),
}


#: pages that the site's search finds, the best first (it takes what it shows from the end)
_FOUND = """words => {
  history.replaceState(null, '', '?q=' + encodeURIComponent(words));
  return Search._performSearch(...Search._parseQuery(words)).map(([page]) => page).reverse();
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build writes pages beside its sources."""
    folder = tmp_path_factory.mktemp("site")
    left_out = shutil.ignore_patterns("_build", "_made", "out", "traces")
    for name in ("docs", "examples"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=left_out)
    for page in REPOSITORY.glob("*.md"):
        shutil.copy(page, folder)
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", folder / "docs", folder / "html"]
    subprocess.run(command, check=True, timeout=300)
    return folder / "html"


@pytest.mark.thorough
@pytest.mark.timeout(420)
def test_each_question_finds_its_page(site: Path, browser: Browser) -> None:
    assert all(len(keywords) > 1 for _, keywords in QUESTIONS.values())
    with opened(browser) as shown:
        shown.goto(f"{(site / 'search.html').as_uri()}?q={quote('conda environment')}")
        expect(shown.locator("#search-results .search-summary")).to_contain_text("found")
        links = [link.get_attribute("href") or "" for link in shown.locator("#search-results li a").all()[:_FIRST]]
        missed = {
            words: found
            for pages, keywords in QUESTIONS.values()
            for words in keywords
            if not pages & set(found := shown.evaluate(_FOUND, words)[:_FIRST])
        }
        assert [link.partition(".html")[0] for link in links] == shown.evaluate(_FOUND, "conda environment")[:_FIRST]
    assert missed == {}


@pytest.mark.thorough
@pytest.mark.timeout(420)
def test_an_old_address_leads_on(site: Path, browser: Browser) -> None:
    with opened(browser) as shown:
        for old, new in (("#many-gpus", "use/gangs.html"), ("#devices", "start/first-cell.html#devices"), ("", "use/")):
            shown.goto(f"{(site / 'user-guide.html').as_uri()}{old}")
            shown.wait_for_url(f"**/{new}*")
