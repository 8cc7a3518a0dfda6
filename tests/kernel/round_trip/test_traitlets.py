"""Observers of an object's traits travel with it, both ways."""

from __future__ import annotations

import pytest
from round_trip import Notebook

_MAKE = (
    "import traitlets\nclass Knob(traitlets.HasTraits):\n    at = traitlets.Int(1)\n    seen = traitlets.List()\n"
    "    @traitlets.observe('at')\n    def _own(self, change): self.seen = [*self.seen, change['new']]\n"
    "knob, log = Knob(), []\ndef note(change): log.append(change['new'])\nknob.observe(note, 'at')"
)


@pytest.mark.parametrize("is_made_there", [False, True])
def test_observers_are_called_in_cells_and_in_the_notebook(nb: Notebook, is_made_there: bool) -> None:
    (nb.ok if is_made_there else nb.cell)(_MAKE)
    nb.ok("knob.at = 5")
    nb.cell("knob.at = 6")
    nb.ok("knob.at += 1")
    assert (nb.ns["log"], nb.ns["knob"].seen) == ([5, 6, 7], [5, 6, 7])
    nb.ok("knob.unobserve(note, 'at')\nknob.at = 8")
    nb.cell("knob.at = 9")
    assert (nb.ns["log"], nb.ns["knob"].seen) == ([5, 6, 7], [5, 6, 7, 8, 9])


def test_an_observer_that_cannot_be_sent_is_said(nb: Notebook) -> None:
    nb.cell(_MAKE + "\nimport threading\nlock = threading.Lock()\nknob.observe(lambda change, own=lock: None, 'at')")
    trip = nb.ok("knob.at = 5")
    assert nb.ns["log"] == [5]
    assert "without an observer, which cannot be pickled" in " ".join(trip.prepared.notes)
