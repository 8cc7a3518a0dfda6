"""``GET /v1/report``: who sees whose GPU-hours, and their price."""

from __future__ import annotations

import pytest
from team_bed import Team

from jupyter_gpu_release.gateway.api.responses import price_list, report_document
from jupyter_gpu_release.gateway.db.held_gpus import HeldGpus
from jupyter_gpu_release.protocol.rest import PriceList, ReportRow
from jupyter_gpu_release.scheduling.queues.prices import Prices

EUR = Prices({"h100": 2.5, "*": 1.0}, "EUR", 20.0)


@pytest.mark.slow("a gateway and its cluster start")
def test_users_see_their_own_and_admins_all(team: Team) -> None:
    with team.rest("ann") as ann, team.rest("bob") as bob, team.rest("root") as root:
        own, others, of_all = ann.report(3600.0), bob.report(3600.0), root.report(3600.0)
    assert {row.user for row in own.rows} == {"ann"}
    assert {row.user for row in others.rows} <= {"bob"}
    assert "ann" in {row.user for row in of_all.rows}
    assert sum(row.runs for row in own.rows) >= 2
    assert (own.price_unit, own.until - own.since, own.rows[0].price) == (None, 3600.0, 0.0)
    assert [line["user"] for line in team.audit() if line["action"] == "report"] == ["root"]


def test_prices_are_those_of_the_types_that_were_held() -> None:
    held = {("bob", ""): HeldGpus(1, 3600.0), ("ann", "NVIDIA H100 NVL"): HeldGpus(2, 7200.0)}
    document = report_document(EUR, 0.0, 9000.0, held)
    assert document.rows == [ReportRow("ann", "NVIDIA H100 NVL", 2, 7200.0, 5.0), ReportRow("bob", "", 1, 3600.0, 2.5)]
    assert document.price_unit == "EUR"
    assert report_document(Prices(), 0.0, 9000.0, held).price_unit is None


def test_a_status_names_the_price_of_an_hour() -> None:
    assert price_list(EUR, []) == PriceList({"": 2.5}, "EUR", 20.0)
    assert price_list(Prices(), []) is None
