from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from msgspec import structs

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import Connection
from jupyter_gpu_release.errors import GpuReleaseError, ImpossibleAskError
from jupyter_gpu_release.kernel.magics.estimate import missing_packages, sent_table, start_words
from jupyter_gpu_release.kernel.magics.sweep import size_words
from jupyter_gpu_release.options.definitions import Written
from jupyter_gpu_release.options.run_options import build_options
from jupyter_gpu_release.protocol.rest import EstimateDocument, GatewayFacts, GpuCounts, StatusDocument, WarmRow
from jupyter_gpu_release.protocol.runs import ResourceAsk, ValueInfo
from jupyter_gpu_release.scheduling.queues.prices import Prices
from jupyter_gpu_release.submission.capture import CapturedInputs


def cluster(*, free: int) -> StatusDocument:
    counts = GpuCounts(total=4, held=4 - free, free=free, external=0)
    return StatusDocument(1, True, GatewayFacts("http://x", "0"), counts, [], [], [])


def answer(starts_in_s: float | None = 0.0, position: int = 0) -> EstimateDocument:
    reason = "" if not position else f"{position}. in default: needs 2 GPUs, 1 of 4 is free"
    return EstimateDocument(1, "default", 50, position, reason, starts_in_s, starts_in_s, starts_in_s)


@pytest.mark.parametrize(
    ("document", "gpus", "said", "words"),
    [
        (cluster(free=2), 2, answer(), "2 of 4 simulated GPUs wanted, 2 free: it would start at once"),
        (cluster(free=1), 2, answer(240.0, 1), "1 of 4 is free; it would start in about 4 min"),
        (cluster(free=1), 2, answer(None, 1), "nobody knows when it would start"),
        (
            cluster(free=4),
            5,
            ImpossibleAskError("the cluster has 4", hint="ask for less"),
            "it would be refused: the cluster has 4 (ask for less)",
        ),
    ],
)
def test_start_estimates(document: StatusDocument, gpus: int, said: EstimateDocument | GpuReleaseError, words: str):
    assert words in start_words(document, ResourceAsk(gpus=gpus), said)


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Target]:
    """Only the daemon's interpreter and environment matter."""
    daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield Target("http://x", "t", connection=Connection("http://x", "", "", daemon_pid=daemon.pid))
    daemon.kill()
    daemon.wait()


def test_packages_that_the_own_cluster_lacks_are_named(own_cluster: Target):
    missing = missing_packages(own_cluster, ["msgspec", "nosuch_zz"])
    assert missing == ["nosuch_zz"]
    said = start_words(cluster(free=4), ResourceAsk(), answer(), missing, ["msgspec", "nosuch_zz"])
    assert said.startswith("it would be refused: the cell imports nosuch_zz,")
    assert missing_packages(own_cluster, ["msgspec"]) == []


def test_what_other_clusters_have_is_not_known():
    imports = ["nosuch_zz"]
    for connection in (
        Connection("http://x", "", "", embedded=False, daemon_pid=1),
        Connection("http://x", "", "", daemon_pid=2**30),
    ):
        assert missing_packages(Target("http://x", "t", connection=connection), imports) is None
    assert missing_packages(Target("http://x", "t", configured=True), imports) is None
    assert missing_packages(Target("http://x", "t", configured=True), []) == []
    said = start_words(cluster(free=4), ResourceAsk(), answer(), None, imports)
    assert "it would start at once (if the nodes have nosuch_zz" in said


def test_what_would_be_sent():
    prepared = CapturedInputs(
        sent=[ValueInfo("a", "int", 28), ValueInfo("X", "ndarray", 3 << 20)],
        total_bytes=(3 << 20) + 28,
        reevaluate={"device": "'cuda'"},
        held_back=["api_key"],
    )
    table = sent_table(prepared)
    assert table.title == "To be sent: 3 MiB through the store"
    assert [row[0] for row in table.rows] == ["X", "a", "device", "api_key"]
    assert sent_table(CapturedInputs()).title == "No names would be sent"


@pytest.mark.parametrize(
    ("trials", "max_gpus", "written", "words"),
    [
        (
            64,
            8,
            {"gpus": ["2"], "timeout": ["30m"]},
            "64 trials with 2 GPUs each, at most 8 GPUs at once; at most 64 h",
        ),
        (1, None, {}, "1 trial with 1 GPU each, as many at once as GPUs come free; nobody knows the GPU time yet"),
        (3, None, {"gpus": ["0"], "timeout": ["30m"]}, "3 trials without a GPU"),
    ],
)
def test_a_sweep_is_as_large_as_its_options_say(trials: int, max_gpus: int | None, written: Written, words: str):
    assert size_words(trials, max_gpus, build_options(written)).startswith(words)


def test_of_a_sweep_that_has_ended_trials_their_time_counts():
    """And no longer what is the most."""
    words = size_words(5, None, build_options({"gpus": ["2"], "timeout": ["30m"]}), 7200.0)
    assert words.endswith("as many at once as GPUs come free; expected by earlier trials: 10 h of GPU time")


def test_where_gpu_time_has_a_price_a_sweep_says_its_own() -> None:
    """And warns of it above the operator's limit, as for one run."""
    euros = Prices({"h100": 2.5}, "EUR", 100.0)
    options = build_options({"gpus": ["h100:2"], "timeout": ["30m"]})
    most = size_words(64, None, options, None, euros)
    assert most.endswith(
        "; at most 64 h of GPU time (price: 160 EUR: more than 100 EUR, is all of it needed?), by the --timeout of each"
    )
    expected = size_words(5, None, options, 7200.0, euros)
    assert expected.endswith("expected by earlier trials: 10 h of GPU time (price: 25 EUR)")


def test_gpus_that_this_kernel_keeps_have_a_price_too() -> None:
    warm = WarmRow("l", "r", "ann", 1, 0.0, 30.0, session="s")
    document = structs.replace(cluster(free=3), warm=[warm])
    said = start_words(document, ResourceAsk(), structs.replace(answer(), price="5 EUR an hour"), session="s")
    assert said.endswith("whose GPUs this kernel keeps; price: 5 EUR an hour")
