"""The content of an environment, the packages that stay the cluster's, and why: tables of two sides."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu_release.environments.plan import make_plan, with_resolved
from jupyter_gpu_release.environments.resolution import make_question
from jupyter_gpu_release.errors import ImpossibleAskError
from jupyter_gpu_release.protocol.environments import (
    Distribution,
    Installed,
    Origin,
    Plan,
    PlannedPackage,
    Question,
    Why,
)

MARKERS = {"python_version": "3.11", "sys_platform": "linux", "python_full_version": "3.11.9"}


def side(*distributions: Distribution | str, python: str = "3.11.9") -> Installed:
    """``name==version`` stands for one of an index, with a package of its name."""
    return Installed.of(python, "linux-x86_64", MARKERS, [_read(each) for each in distributions])


def _read(each: Distribution | str) -> Distribution:
    if isinstance(each, Distribution):
        return each
    name, _, version = each.partition("==")
    return Distribution(name, version, imports=[name.replace("-", "_")])


def dist(pinned: str, *requires: str, imports: str = "", **facts: object) -> Distribution:
    name, _, version = pinned.partition("==")
    tops = imports.split() or [name.replace("-", "_")]
    return Distribution(name, version, requires=list(requires), imports=tops, **facts)  # type: ignore[arg-type]


def packages(plan: Plan) -> dict[str, str]:
    return {each.name: each.version for each in plan.packages}


def left_out(plan: Plan) -> dict[str, Why]:
    return {each.name: each.why for each in plan.left_out}


OURS = dist("jupyter-gpu-release==0.1", "msgspec", "ipython>=8", 'tomli; python_version < "3.11"')
EDITED = dist("vision-tools==0.1", origin=Origin.EDITABLE, source="file:///p", digest="files:1", files=14)

TABLE = {
    "the same": ((["a==1.0"], ["a==1.0.0"]), {}, {}),
    "lacking": ((["a==1"], []), {"a": "1"}, {}),
    "only the cluster's": (([], ["a==1"]), {}, {}),
    "another version": ((["a==2"], ["a==1"]), {"a": "2"}, {}),
    "a local part counts": ((["a==1+x"], ["a==1"]), {"a": "1+x"}, {}),
    "torch stays": ((["torch==2.4"], ["torch==2.3"]), {}, {"torch": Why.OWNED}),
    "torch that the cluster lacks": ((["torch==2.4"], []), {}, {"torch": Why.OWNED}),
    "families by pattern": (
        (["nvidia-cudnn-cu12==9", "cupy-cuda12x==13", "ray==2.60"], []),
        {},
        {"nvidia-cudnn-cu12": Why.OWNED, "cupy-cuda12x": Why.OWNED, "ray": Why.OWNED},
    ),
    "what ranks need of ours": (
        (["msgspec==0.20", "tomli==2"], [OURS, "msgspec==0.19", dist("ipython==9", "traitlets"), "tomli==1"]),
        {"tomli": "2"},  # required by no rank of this Python
        {"msgspec": Why.OWNED},
    ),
    "what that requires, too": (
        (["traitlets==6"], [OURS, dist("ipython==9", "traitlets"), "traitlets==5"]),
        {},
        {"traitlets": Why.OWNED},
    ),
    "installers: the cluster's will do": ((["pip==25"], ["pip==24"]), {}, {"pip": Why.OWNED}),
    "what requires it goes in, too": (
        (["numpy==2", "scipy==1"], ["numpy==1", dist("scipy==1", "numpy"), dist("other==3", "scipy")]),
        {"numpy": "2", "scipy": "1"},
        {},
    ),
    "the cluster's alone, if it takes the notebook's": (
        (["numpy==2"], ["numpy==1", dist("scipy==1.9", "numpy>=1")]),
        {"numpy": "2", "scipy": "1.9"},
        {},
    ),
    "nothing goes in for what the cluster lacked": (
        (["extra-thing==2"], [dist("scipy==1.9", "extra-thing<1")]),
        {"extra-thing": "2"},
        {},
    ),
    "an owned one requires another version": (
        (["sympy==1.12"], [dist("torch==2.4", "sympy>=1.13"), "sympy==1.13"]),
        {},
        {"sympy": Why.CONFLICT},
    ),
    "an owned one takes it": (
        (["sympy==1.14"], [dist("torch==2.4", "sympy>=1.13"), "sympy==1.13"]),
        {"sympy": "1.14"},
        {},
    ),
    "one top-level package goes whole": (
        (
            [dist("core==2", imports="acme"), dist("plugin==1", imports="acme/plugin")],
            [dist("core==1", imports="acme"), dist("plugin==1", imports="acme/plugin")],
        ),
        {"core": "2", "plugin": "1"},
        {},
    ),
    "also of what only the cluster has": (
        (
            [dist("core==2", imports="acme")],
            [dist("core==1", imports="acme"), dist("plugin==1", imports="acme/plugin")],
        ),
        {"core": "2", "plugin": "1"},
        {},
    ),
    "two for one package: the notebook's": (
        ([dist("cv-contrib==4", imports="cv2")], [dist("cv-headless==4", imports="cv2")]),
        {"cv-contrib": "4"},
        {},
    ),
    "parts of a namespace do not hide each other": (
        (
            [dist("protobuf==5", imports="google/protobuf")],
            [dist("protobuf==4", imports="google/protobuf"), dist("auth==1", imports="google/auth")],
        ),
        {"protobuf": "5"},
        {},
    ),
    "tests that many install by mistake join nothing": (
        ([dist("a==2", imports="a tests")], [dist("a==1", imports="a tests"), dist("b==1", imports="b tests/x")]),
        {"a": "2"},
        {},
    ),
    "compiled against another torch": (
        ([dist("fast==1", "torch", is_pure=False), "torch==2.4"], ["torch==2.3"]),
        {},
        {"fast": Why.CONFLICT, "torch": Why.OWNED},
    ),
    "compiled against the same": (
        ([dist("fast==1", "torch", is_pure=False), "torch==2.4"], ["torch==2.4"]),
        {"fast": "1"},
        {},
    ),
    "an editable is shipped": (([EDITED], []), {"vision-tools": "0.1"}, {}),
    "the same editable on the cluster": (([EDITED], [EDITED]), {}, {}),
    "an editable of the cluster's version": (([EDITED], ["vision-tools==0.1"]), {"vision-tools": "0.1"}, {}),
    "a compiled editable": (
        ([dist("fast==1", origin=Origin.EDITABLE, digest="files:1", is_pure=False)], []),
        {},
        {"fast": Why.UNAVAILABLE},
    ),
    "an editable of too many files": (([dist("big==1", origin=Origin.EDITABLE)], []), {}, {"big": Why.UNAVAILABLE}),
    "an editable of too many files on both sides": (
        ([dist("big==1", origin=Origin.EDITABLE)], [dist("big==1", origin=Origin.EDITABLE)]),
        {},
        {"big": Why.UNAVAILABLE},
    ),
    "conda's, taken from an index": (([dist("a==1", origin=Origin.CONDA, is_pure=False)], []), {"a": "1"}, {}),
    "a folder of the cluster stays there": (
        (["numpy==2"], ["numpy==1", dist("local==1", "numpy", origin=Origin.FOLDER)]),
        {"numpy": "2"},
        {},
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_table(case: str) -> None:
    (notebook, cluster), entering, out = TABLE[case]
    plan = make_plan(side(*notebook), side(*cluster))
    assert (packages(plan), left_out(plan)) == (entering, out)
    assert bool(plan.digest) == bool(entering)


def test_the_operator_owns_more() -> None:
    plan = make_plan(side("Acme_x==2".lower().replace("_", "-"), "b==2"), side("acme-x==1", "b==1"), owned=["Acme_*"])
    assert (packages(plan), left_out(plan)) == ({"b": "2"}, {"acme-x": Why.OWNED})


def test_an_owned_one_in_the_same_package_keeps_all_of_it() -> None:
    mine = [dist("core==2", imports="acme"), "b==1"]
    theirs = [dist("core==1", imports="acme"), dist("plugin==1", imports="acme/plugin")]
    plan = make_plan(side(*mine), side(*theirs), owned=["plugin"])
    assert (packages(plan), left_out(plan)) == ({"b": "1"}, {"core": Why.CONFLICT})


def test_what_could_not_be_had_is_shipped_if_it_is_pure_and_named_if_not() -> None:
    notebook = side("pure==1", dist("compiled==1", origin=Origin.CONDA, is_pure=False), "c==1")
    plan = make_plan(notebook, side(), unavailable={"pure": "not found", "compiled": "no wheel"})
    assert {each.name: each.is_shipped for each in plan.packages} == {"c": False, "pure": True}
    (left,) = plan.left_out
    assert (left.name, left.why) == ("compiled", Why.UNAVAILABLE)
    assert "no wheel" in str(left)
    assert "wheel" in left.hint


def test_another_python_is_said_once_with_the_cure() -> None:
    plan = make_plan(side("a==1", python="3.12.4"), side())
    assert (packages(plan), left_out(plan), plan.digest) == ({}, {"python": Why.PYTHON}, "")
    assert plan.left_out[0].hint.startswith("use a kernel with Python 3.11, or have the operator offer Python 3.12")


def test_for_another_python_that_the_nodes_have_all_goes_along_but_this_package() -> None:
    notebook = side("torch==2.4", "msgspec==0.20", OURS, EDITED, python="3.12.4")
    plan = make_plan(notebook, side(python="3.12.1"), interpreter="3.12", owned=["acme-*"])
    assert packages(plan) == {"msgspec": "0.20", "torch": "2.4", "vision-tools": "0.1"}
    assert (plan.interpreter, plan.python) == ("3.12", "3.12.1")
    other = make_plan(notebook, side(python="3.12.1"), interpreter="/opt/python3.12")
    assert len({plan.digest, other.digest, ""}) == 3
    asked = make_plan(notebook, side(python="3.12.1"), interpreter="3.12", requests=["jax"])
    question = make_question(asked, notebook, side(python="3.12.1"))
    assert (question.requests, question.interpreter) == (["jax"], "3.12")
    assert not {"jax", "torch", "msgspec"} & set(question.excluded)


def test_a_rank_in_another_python_needs_what_this_package_requires() -> None:
    notebook = side(dist("msgspec==0.20", is_pure=False), OURS, "a==1", python="3.12.4")
    plan = make_plan(notebook, side(python="3.12.1"), interpreter="3.12", unavailable={"msgspec": "no wheel of it"})
    assert (packages(plan), plan.digest, plan.interpreter) == ({}, "", "")
    assert str(plan.left_out[0]) == "python 3.12.4: every rank needs msgspec 0.20: no wheel of it"


def test_a_folder_of_another_python_keeps_its_gpu_libraries() -> None:
    there = side("torch==2.3", "msgspec==0.19")
    plan = make_plan(with_resolved(there, there, {"msgspec": "0.19", "added": "1"}), there, interpreter="/envs/a")
    assert packages(plan) == {"added": "1"}
    assert make_plan(there, there, interpreter="/envs/a").digest, "it is an environment, with nothing to install"
    with pytest.raises(ImpossibleAskError, match="torch is the cluster's"):
        make_question(make_plan(there, there, interpreter="/envs/a", requests=["torch"]), there, there)


def test_the_digest_names_content_and_nothing_else() -> None:
    one = make_plan(side("a==1", EDITED), side("b==1"))
    assert one.digest == make_plan(side(EDITED, "a==1", "b==1"), side("b==1", "c==3")).digest
    edited = dist("vision-tools==0.1", origin=Origin.EDITABLE, source="file:///p", digest="files:2", files=14)
    assert (
        len(
            {one.digest, make_plan(side("a==2", EDITED), side()).digest, make_plan(side("a==1", edited), side()).digest}
        )
        == 3
    )


def test_a_version_that_nobody_has_is_asked_for_with_the_rest_fixed() -> None:
    notebook = side("numpy==2", "msgspec==0.20")
    cluster = side("numpy==1", dist("scipy==1.9", "numpy<2"), dist("torch==2.3", "sympy>=1.13"), OURS, "msgspec==0.19")
    plan = make_plan(notebook, cluster)
    assert (packages(plan), plan.requests, plan.digest) == ({"numpy": "2"}, ["scipy"], "")
    question = make_question(plan, notebook, cluster)
    assert question.requests == ["scipy"]
    assert question.constraints == ["numpy==2", "sympy>=1.13"]
    assert {"torch", "msgspec", "jupyter-gpu-release"} <= set(question.excluded)
    assert question.preferred == ["numpy==2", "scipy==1.9"]
    found = make_plan(with_resolved(notebook, cluster, {"scipy": "1.13", "numpy": "2"}), cluster)
    assert (packages(found), found.requests) == ({"numpy": "2", "scipy": "1.13"}, [])
    assert found.digest


def test_an_owned_package_cannot_be_asked_for() -> None:
    cluster = side("torch==2.3")
    plan = make_plan(side(), cluster, requests=["einops==0.8.1", "torch>=2.4"])
    with pytest.raises(ImpossibleAskError, match=r"torch is the cluster's to install, and it has 2\.3"):
        make_question(plan, side(), cluster)


@pytest.mark.parametrize(
    "request_",
    [
        "a @ https://host/a.whl",
        "a\n--index-url b",
        "--editable .",
        "-r x",
        "./a",
        "a=={$TOKEN}",
        'a; "\n-r x" == "y"',
        "",
    ],
)
def test_a_client_gives_the_installer_no_lines(request_: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"requests": [request_], "constraints": [], "excluded": [], "preferred": []}, Question)


@pytest.mark.parametrize(
    ("name", "version"), [("a\n-r x", "1"), ("../a", "1"), ("a", "1\n-r x"), ("a", "1\n"), ("A", "1")]
)
def test_names_and_versions_are_no_lines_either(name: str, version: str) -> None:
    content = msgspec.msgpack.encode({"name": name, "version": version})
    for kind in (Distribution, PlannedPackage):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(content, type=kind)
