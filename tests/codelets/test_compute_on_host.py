"""`compute_on_host`: a host runs it, with the same results; what a tile runs stays `compute`."""

import json

import numpy as np
import pytest

from tremula.base.errors import GraphObjectCreationError, GraphObjectLoadError
from tremula.base.types import float32, half
from tremula.codelets import (
    InOut,
    Input,
    MultiVertex,
    Output,
    Vector,
    Vertex,
    codelet_from_dict,
    codelet_of,
)
from tremula.codelets.kernel.kernel_source import Variant
from tremula.codelets.python.random import random_uniform


class Plain(MultiVertex):
    """Each worker sums up its elements of the parts."""

    parts: Vector[Input[Vector[half]]]
    out: Output[Vector[half]]

    def compute(self, worker_id):
        n = len(self.out)
        for i in range(n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers):
            total = half(0)
            for j in range(len(self.parts)):
                total += self.parts[j][i]
            self.out[i] = total


class InLongRuns(Plain):
    """Sums as in Plain, part after part."""

    compute = Plain.compute

    def compute_on_host(self):
        out = self.out
        for i in range(len(out)):
            out[i] = half(0)
        for j in range(len(self.parts)):
            part = self.parts[j]
            for i in range(len(out)):
                out[i] += part[i]


def test_what_a_tile_runs_stays(make_table):
    """Code on a tile and counted cycles are those of `compute`, whatever a host runs."""
    plain, fast = codelet_of(Plain), codelet_of(InLongRuns)
    assert (fast.spec.n_instructions, fast.spec.routines) == (
        plain.spec.n_instructions,
        plain.spec.routines,
    )
    assert fast.is_data_dependent == plain.is_data_dependent
    for variant, has_modes in (
        (Variant.COUNTED, False),
        (Variant.COST, False),
        (Variant.RUN, True),
    ):
        texts = [c.kernel_text(variant, has_modes=has_modes) for c in (plain, fast)]
        assert lines_of(texts[0]) == lines_of(texts[1])
    assert "compute_on_host" in fast.kernel_text()
    assert fast.kernel_text(n_workers=4) == fast.kernel_text()
    tables = [make_table(c, 3, 1, 13) for c in (plain, fast)]
    assert np.array_equal(tables[0].counted(), tables[1].counted())


def lines_of(text: str) -> list[str]:
    """A kernel's lines without the names of the class, which are in comments."""
    return [line.split("  #")[0] for line in text.splitlines() if not line.startswith("#")]


def test_a_host_has_the_same_results(make_table):
    """The kernel of `compute_on_host` and plain Python's `compute` write the same bits."""
    for size in (1, 2, 13):
        run = make_table(codelet_of(InLongRuns), 3, size, size)
        interpreted = run.copy()
        assert run.run()
        assert interpreted.interpret()
        np.testing.assert_array_equal(run.arena, interpreted.arena)


def test_a_new_compute_has_no_inherited_host_form():
    """A subclass that replaces `compute` alone runs that: the inherited form was another's."""

    class Doubled(InLongRuns):
        def compute(self, worker_id):
            for i in range(worker_id, len(self.out), self.n_workers):
                self.out[i] = self.parts[0][i] + self.parts[0][i]

    class Renamed(InLongRuns):
        name = "demo::Renamed"

    assert codelet_of(Doubled).host_compute is None
    assert codelet_of(Renamed).host_compute is not None


def test_it_is_stored():
    """A codelet read from a file has its form for hosts, checked like all others."""
    stored = json.loads(json.dumps(codelet_of(InLongRuns).to_dict()))
    again = codelet_from_dict(stored)
    assert again.kernel_text() == codelet_of(InLongRuns).kernel_text()
    assert again.content_hash() == codelet_of(InLongRuns).content_hash()
    del stored["compute_on_host"]
    assert codelet_from_dict(stored).content_hash() != again.content_hash()
    stored["compute_on_host"] = {"name": "f", "text": "def f(self):\n    import os", "bindings": {}}
    with pytest.raises(GraphObjectLoadError, match="import"):
        codelet_from_dict(stored)


def test_refusals():
    """One that cannot have the results of `compute` is refused, with its own line."""

    class OfOneWorker(InLongRuns):
        compute = Plain.compute

        def compute_on_host(self, worker_id):
            self.out[worker_id] = half(0)

    class Drawing(Vertex):
        y: InOut[Vector[float32]]

        def compute(self):
            self.y[0] = random_uniform()

        def compute_on_host(self):
            self.y[0] = float32(0.5)

    class Returning(Vertex):
        y: InOut[Vector[float32]]

        def compute(self):
            return self.y[0] > 0

        def compute_on_host(self):
            self.y[0] = float32(0.5)

    for cls, what in (
        (OfOneWorker, r"takes \(self\), got \(self, worker_id\)"),
        (Drawing, "draws random numbers"),
        (Returning, "neither does"),
    ):
        with pytest.raises(GraphObjectCreationError, match=what) as error:
            codelet_of(cls)
        assert "compute_on_host" in str(error.value)
