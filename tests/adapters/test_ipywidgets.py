"""A widget that others observe."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo

ipywidgets = pytest.importorskip("ipywidgets")


def test_a_widget_that_a_function_of_the_users_observes_travels_without_it_and_that_is_said() -> None:
    quiet, observed = ipywidgets.IntSlider(), ipywidgets.IntSlider()
    observed.observe(lambda _change: None, names="value")
    dump = codec.dump({"quiet": quiet, "observed": observed}, NamespaceInfo({}, at_home=True))
    assert dump.notes("was sent") == ["`observed` was sent without the functions that observe it"]


def test_the_widget_itself_is_named_where_the_notebook_has_a_name_for_it() -> None:
    slider, other = ipywidgets.IntSlider(), ipywidgets.IntSlider()
    for each in (slider, other):
        each.observe(lambda _change: None, names="value")
    names = {"_": slider, "box": ipywidgets.HBox([slider, other]), "slider": slider}
    dump = codec.dump({"box": names["box"]}, NamespaceInfo(names, at_home=True))
    words = "was sent without the functions that observe it"
    assert sorted(dump.notes("was sent")) == [f"`box` {words}", f"`slider` {words}"]
