"""Codelets in files: they come back the same, and nothing in a file is trusted."""

import copy
import dataclasses
import json
import math

import numpy as np
import pytest

from tremula.base.errors import GraphObjectLoadError, MissingPerfEstimate
from tremula.base.types import float32, half, int32
from tremula.codelets import (
    InOut,
    Input,
    Output,
    Vector,
    Vertex,
    codelet_from_dict,
    codelet_of,
)

GAIN = 0.1
TAPS = (1, 2, 3)


def gained(value):
    return value * GAIN + math.sqrt(abs(value))


class Stored(Vertex):
    x: Input[Vector[half]]
    out: Output[Vector[float32]]
    n: InOut[int32]
    name = "demo::Stored<half>"

    def compute(self):
        for i in range(len(self.x)):
            self.out[i] = gained(self.x[i]) + TAPS[i % 3] + np.exp(float32(i))
        self.n += 1
        return self.n > 0


def stored() -> dict:
    return json.loads(json.dumps(codelet_of(Stored).to_dict()))


def test_a_stored_codelet_runs_the_same(make_table):
    """A codelet read from JSON has the same spec, kernel text, results and hash."""
    codelet, again = codelet_of(Stored), codelet_from_dict(stored())
    assert dataclasses.replace(again.spec, source=codelet.spec.source) == codelet.spec
    assert str(again.spec.source) == str(codelet.spec.source)
    assert again.content_hash() == codelet.content_hash()
    assert again.kernel_text() == codelet.kernel_text()
    first, second = (make_table(c, 3, 1, {"x": 5, "out": 5}) for c in (codelet, again))
    third = second.copy()
    assert first.run() == second.run()
    np.testing.assert_array_equal(first.arena, second.arena)
    third.interpret()
    np.testing.assert_allclose(third.values("out"), second.values("out"), rtol=1e-6)
    assert again.is_data_dependent == codelet.is_data_dependent


def test_the_hash_follows_the_content():
    """The hash changes with the code and not with the place of the file."""
    base = codelet_from_dict(stored()).content_hash()
    moved = stored() | {"source": ["elsewhere.py", 99]}
    assert codelet_from_dict(moved).content_hash() == base
    changed = stored()
    changed["compute"]["bindings"]["TAPS"]["tuple"][0] = 9
    assert codelet_from_dict(changed).content_hash() != base


def test_a_cycles_method_stays_behind(make_table):
    """A stored codelet whose cost was a method says so when asked for cycles."""

    class Priced(Vertex):
        x: Input[float32]
        n: int32

        def compute(self):
            self.n = 1

        def cycles(v, chip):
            return 3

    again = codelet_from_dict(codelet_of(Priced).to_dict())
    assert not again.is_data_dependent
    with pytest.raises(MissingPerfEstimate, match="has a `cycles` method, which files do not"):
        make_table(again, 2).costed()


def with_text(text: str) -> dict:
    changed = stored()
    changed["compute"]["text"] = text
    return changed


def with_binding(name: str, value: object) -> dict:
    changed = with_text(f"def compute(self):\n    self.n = {name}\n")
    changed["compute"]["bindings"][name] = value
    return changed


ATTACKS = [
    (with_text("def compute(self):\n    import os\n"), "'import'"),
    (with_text("import os\ndef compute(self):\n    pass\n"), "a plain function"),
    (with_text("def compute(self):\n    self.n = open(1)\n"), "'open' is not a function"),
    (with_text("def compute(self):\n    self.n = eval\n"), "unknown name 'eval'"),
    (with_text("def compute(self):\n    self.n = self.__class__\n"), "private"),
    (with_text("def compute(self):\n    self.n = np._x\n"), "private"),
    (with_text("def compute(self):\n    self.n = np.load(1)\n"), "not a function"),
    (with_text("def compute(self):\n    self.n = ().__class__\n"), "private"),
    (with_text("def compute(self):\n    _k_load = 1\n"), "reserved"),
    (with_text("def compute(self):\n    self.x[0] = 1\n"), "which is an Input"),
    (with_text("def compute(self, a=print(1)):\n    pass\n"), "takes (self)"),
    (with_text("def compute(self):\n"), "IndentationError"),
    (with_text("def compute(self):\n    self.n = 'text'\n"), "text has no meaning"),
    (with_text("x" * 300_000), "is not a text"),
    (with_text("def compute(self):\n    self.n = " + "(" * 500 + "1" + ")" * 500), "rror"),
    (with_binding("evil", {"known": ["builtin", "exec"]}), "'exec' is not a function of builtin"),
    (with_binding("evil", {"known": ["os", "system"]}), "KeyError"),
    (with_binding("evil", {"code": "1"}), "unknown meaning 'code'"),
    (with_binding("evil", {"number": "__import__"}), "ValueError"),
    (with_binding("evil", {"type": "DOUBLE"}), "KeyError"),
    (stored() | {"base": "Nothing"}, "Nothing"),
    (stored() | {"fields": [{}]}, "KeyError"),
    (stored() | {"fields": stored()["fields"] * 2}, "two fields have the same name"),
    (stored() | {"source": [1, 2]}, "not a file and line"),
    ({"language": "python"}, "KeyError"),
    ({"language": "cobol"}, "unknown language 'cobol'"),
    ([], "unknown language None"),
]


@pytest.mark.parametrize(("altered", "reason"), ATTACKS)
def test_altered_files_are_refused(altered, reason):
    """Whatever `to_dict` cannot have written is refused with its reason."""
    with pytest.raises(GraphObjectLoadError) as caught:
        codelet_from_dict(altered)
    assert reason in str(caught.value)
    assert "build the program again" in str(caught.value)


def test_a_name_cannot_become_code():
    """A codelet's name or a function's name from a file cannot end a comment and become code."""
    evil = copy.deepcopy(stored()) | {"name": 'x"""\nimport os\n"""'}
    text = codelet_from_dict(evil).kernel_text()
    assert "\nimport os" not in text
    evil = stored()
    evil["compute"]["name"] = "a\nimport os"
    with pytest.raises(GraphObjectLoadError, match="not a function name"):
        codelet_from_dict(evil)
