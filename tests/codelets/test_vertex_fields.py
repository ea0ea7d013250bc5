"""Vertex classes as codelets: every form of a field, and every refusal with its text and line."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from tremula.base.errors import GraphObjectCreationError, GraphProgramCompilationError
from tremula.base.types import BOOL, FLOAT, HALF, float32, half, int32, quarter
from tremula.codelets import (
    InOut,
    Input,
    MultiVertex,
    Output,
    Vector,
    VectorList,
    Vertex,
    codelet_of,
)
from tremula.codelets.spec import Direction, FieldKind, VertexBase

DATA = np.zeros(3)


def test_every_form_of_a_field():
    """Annotations become kind, type, direction, layout, alignment and interleaving, in order."""

    class Base(Vertex):
        a: Input[float32]

    class Forms(Base):
        b: Output[Vector["half", "ONE_PTR", 8, True]]  # noqa: F821
        c: Vector[InOut[Vector[np.int32, "SPAN", 4]]]  # noqa: F821
        d: Input[VectorList[bool, "DELTAN"]]  # noqa: F821
        e: Vector[Output["UNSIGNED_INT"]]  # noqa: F821
        f: half
        g: Vector[np.float32]

        def compute(self):
            self.f = self.a

    spec = codelet_of(Forms).spec
    assert codelet_of(Forms) is codelet_of(Forms)
    assert [f.name for f in spec.fields] == list("abcdefg")
    kinds = [f.kind.name for f in spec.fields]
    assert kinds == ["SCALAR", "VECTOR", "VECTOR_LIST", "VECTOR_LIST", "SCALAR_LIST", "STATE",
                     "STATE_VECTOR"]  # fmt: skip
    b, d = spec.field("b"), spec.field("d")
    assert (b.type, b.direction, b.layout) == (HALF, Direction.OUTPUT, "ONE_PTR")
    assert (b.min_align, b.is_interleaved) == (8, True)
    assert (d.type, d.layout, d.kind) == (BOOL, "DELTAN", FieldKind.VECTOR_LIST)
    assert spec.field("g").direction is None
    assert spec.base is VertexBase.VERTEX
    assert spec.language == "python"


def test_text_annotations():
    """`from __future__ import annotations` works, inherited and inside factories."""
    path = Path(__file__).with_name("future_annotations_case.py")
    loader = importlib.util.spec_from_file_location("future_annotations_case", path)
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    fields = codelet_of(module.Later).spec.fields
    assert [(f.name, f.type) for f in fields] == [("x", FLOAT), ("out", FLOAT), ("scale", FLOAT)]
    assert fields[0].layout == "ONE_PTR"
    assert codelet_of(module.make(half)).spec.field("x").type is HALF


def refusal(body, annotations="x: Input[Vector[float32]]\n    out: Output[float32]",
            base="Vertex", head="def compute(self):"):  # fmt: skip
    """The error a class with this compute raises."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    text = f"class Bad({base}):\n    {annotations}\n\n    {head}\n{lines}"
    path = REFUSED / f"case_{abs(hash(text))}.py"
    path.write_text(text)
    scope = dict(globals())
    exec(compile(text, str(path), "exec"), scope)
    with pytest.raises(GraphObjectCreationError) as caught:
        codelet_of(scope["Bad"])
    return str(caught.value).replace(str(path), "bad.py")


REFUSED = Path()


@pytest.fixture(autouse=True)
def _refused_folder(tmp_path):
    global REFUSED  # noqa: PLW0603
    REFUSED = tmp_path


CASES = [
    ("self.out = self.y[0]", "uses 'self.y', which is not a field", "known names|did you mean"),
    ("self.out = self.ou", "uses 'self.ou', which is not a field", "did you mean 'out'"),
    ("self.total = 1.0", "assigns 'self.total', which is not a field", "local variable"),
    ("self.x[0] = 1.0", "writes 'self.x', which is an Input", "declare x as Output or InOut"),
    ("self.x = 1.0", "writes 'self.x', which is an Input", "InOut"),
    ("try:\n    pass\nexcept ValueError:\n    pass", "cannot contain 'try'", "test with if"),
    ("with open('f'):\n    pass", "cannot contain 'with'", "without with"),
    ("yield 1", "cannot contain 'yield'", "Output field"),
    ("f = lambda: 1", "cannot contain 'lambda'", "define a function outside"),
    ("class C:\n    pass", "cannot contain a class", "outside compute"),
    ("def f():\n    pass", "cannot contain a nested function", "outside the class"),
    ("raise ValueError", "cannot contain 'raise'", "return False"),
    ("assert self.x[0] > 0", "cannot contain 'assert'", "return False"),
    ("import os", "cannot contain 'import'", "top of the file"),
    ("y = [1, 2]", "cannot contain a list", "arithmetic"),
    ("y = [i for i in range(3)]", "cannot contain a comprehension", "for loop"),
    ("y = 'text'\nself.out = y", "text has no meaning", "numbers"),
    ("y = np.float64(1)", "64-bit float, which tiles do not have", "float32"),
    ("y = np.zeros(3)", "without a dtype makes 64-bit floats", "dtype=np.float32"),
    ("y = DATA[0]", "'DATA' is a ndarray, which a codelet cannot use", "through its fields"),
    ("y = floot32(1)", "unknown name 'floot32'", "did you mean 'float32'"),
    ("y = self.x.size", "fields have no attributes", "len"),
    ("y = len(self.x).real", "values have no attributes", "len"),
    ("for i in range(3):\n    pass\nelse:\n    pass", "loop with else", "flag"),
    ("self.x[0] + 1", "does nothing", "assign"),
    ("y = self", "'self' is used by itself", "self.x"),
    ("y = 1 in (1, 2)", "'is', 'in' and '@'", "loop"),
    ("_k_y = 1", "the name '_k_y' is reserved", "rename"),
    ("y = float32(1, 2)", "a conversion takes one value", "float32"),
    ("y = np.exp", "can only be called", "arguments"),
]


@pytest.mark.parametrize(("body", "what", "hint"), CASES)
def test_compute_refusals(body, what, hint):
    """Everything outside the subset is refused with what, the user's line and the hint."""
    message = refusal(body)
    assert what in message
    assert "bad.py:" in message
    assert re.search(f"  try: .*({hint})", message), message


def test_line_of_a_refusal():
    """The line named is the line of the statement."""
    message = refusal("y = 1\nself.out = y\nself.nothing = 2")
    assert "at bad.py:8\n" in message


def test_class_refusals():
    """Missing compute, wrong signatures and wrong field types are refused with the class's name."""
    message = refusal("pass", base="MultiVertex")
    assert "compute of a MultiVertex takes (self, worker_id), got (self)" in message
    message = refusal("pass", head="def compute(self, worker_id):")
    assert "compute of a Vertex takes (self), got (self, worker_id)" in message

    class Empty(Vertex):
        x: Input[float32]

    with pytest.raises(GraphObjectCreationError, match=r"Empty has no compute[^$]*:\d+\n  try"):
        codelet_of(Empty)
    with pytest.raises(GraphObjectCreationError, match="not a subclass of Vertex"):
        codelet_of(int)


@pytest.mark.parametrize(
    ("annotation", "what"),
    [
        ("x: dict", "unsupported field type"),
        ("x: float", "'float' has no fixed size"),
        ("x: Input[np.float64]", "no 64-bit floats"),
        ("x: Input[Vector[Input[float32]]]", "nests too deeply"),
        ("x: Input[Vector[float32, 'SPAM']]", "unknown layout 'SPAM'"),
        ("x: Input[Vector[float32, 'SPAN', 3]]", "power of two, got 3"),
        ("x: quarter", "state cannot be quarter"),
        ("_x: float32", "not a usable field name"),
    ],
)
def test_field_refusals(annotation, what):
    """A wrong annotation is refused with the field's name."""
    message = refusal("pass", annotations=annotation)
    assert what in message
    assert f"field {annotation.split(':')[0]!r} of codelet Bad" in message


def test_compile_errors_name_the_users_line():
    """What only Numba can refuse comes with the codelet, the user's line, a reason and a hint."""

    class Aliased(Vertex):
        x: Input[Vector[float32]]
        n: int32

        def compute(self):
            row = self.x
            row[0] = 1.0

    with pytest.raises(GraphProgramCompilationError) as caught:
        codelet_of(Aliased).kernel_address()
    message = str(caught.value)
    line = codelet_of(Aliased).spec.source.line + 2
    assert "codelet 'Aliased' does not compile" in message
    assert f"test_vertex_fields.py:{line}\n" in message
    assert "declare the field as Output or InOut" in message

    class Mixed(Vertex):
        x: Input[float32]
        n: int32

        def compute(self):
            self.n = self.x & 3

    with pytest.raises(GraphProgramCompilationError, match="needs integers, got float32 and int64"):
        codelet_of(Mixed).kernel_address()


_USED_BY_TEXT = (InOut, MultiVertex, Output, VectorList, quarter)  # in the cases' own text
