from __future__ import annotations

from jupyter_gpu_release.kernel.magics.packages import packages_table
from jupyter_gpu_release.protocol.environments import LACKS, LeftOut, Plan, PlannedPackage, Why
from jupyter_gpu_release.submission.packages import CellPackages


def test_each_package_that_differs_has_a_row_with_what_cells_get_and_why() -> None:
    plan = Plan(
        "3.11", "here", [PlannedPackage("numpy", "2.0", "another version"), PlannedPackage("einops", "1", LACKS)]
    )
    left = [
        LeftOut("torch", "2.6", "2.5", Why.OWNED, "it is the cluster's to install", "ask for it"),
        LeftOut("gdal", "3.8", "", Why.UNAVAILABLE, "no wheel"),
    ]
    table = packages_table(CellPackages(plan, left_out=left, there={"numpy": "1.26", "torch": "2.5"}))
    assert table.title.startswith("In GPU cells are 2 packages of this notebook, 2 differ and are not")
    assert table.rows == [
        ("einops", "1", "", f"1: {LACKS}"),
        ("gdal", "3.8", "", "none: no wheel"),
        ("numpy", "2.0", "1.26", "2.0: another version"),
        ("torch", "2.6", "2.5", "2.5: it is the cluster's to install → ask for it"),
    ]


def test_where_nothing_differs_that_is_all_that_is_said() -> None:
    assert repr(packages_table(CellPackages())) == "GPU cells find the same packages as this notebook"
