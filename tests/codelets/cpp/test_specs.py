"""What is read from a C++ file: names, fields, layouts, constraints, lines."""

import json
from pathlib import Path

import pytest

from tremula.base.types import FLOAT, HALF, QUARTER
from tremula.codelets.cpp import load_cpp_codelets, vertex_name
from tremula.codelets.spec import Direction, FieldKind, VertexBase
from tremula.commands import main

FILES = Path(__file__).parent / "files"


def test_names(codelets):
    """Exactly the codelets of the files are found, under the names add_vertex takes."""
    types = ("float", "half", "unsigned int", "short")
    binary = {f"shop::Binary<{t},shop::Op::{op}>" for t in types for op in ("ADD", "MULTIPLY")}
    assert set(codelets) == binary | {
        "SumVertex", "Counting", "Increment", "Append", "Rows<float>", "Rows<int>", "Area",
        "Halves", "Norm", "Mark<int,false>", "Either<true>", "Either<false>", "Vectors", "Eighths",
        "Pick<char>", "Pick<long long>", "BitsOfHalf",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Sum< unsigned , true >", "Sum<unsigned int,true>"),
        ("a::B<uint16_t,std::int8_t>", "a::B<unsigned short,signed char>"),
        ("X<_Float16, long int>", "X<half,long long>"),
        ("X<unsigned_thing, short unsigned int>", "X<unsigned_thing,unsigned short>"),
    ],
)
def test_one_form_of_a_name(written, name):
    """However a name is spelt, it has one form."""
    assert vertex_name(written) == name


def test_fields_layouts_and_constraints(codelets):
    """Layout, alignment, memory, direction, constness and constraints are read from the types."""
    spec = codelets["shop::Binary<half,shop::Op::ADD>"].spec
    a, b, out, bias = spec.fields
    assert (a.layout, a.min_align, a.is_interleaved) == ("ONE_PTR", 8, False)
    assert (b.layout, b.min_align, b.is_interleaved) == ("SCALED_PTR64", 8, True)
    assert (out.layout, out.direction, out.type) == ("SHORT_SPAN", Direction.OUTPUT, HALF)
    assert (bias.kind, bias.is_const, bias.direction) == (FieldKind.STATE, True, None)
    assert spec.constraints == ("elem(*a) != elem(*b)", "region(*a) != region(*out)")
    assert spec.base is VertexBase.VERTEX
    assert not spec.returns_bool
    assert spec.language == "c++"
    assert spec.n_instructions > 25


def test_kinds(codelets):
    """Every kind of field is recognised."""
    rows = {f.name: (f.kind, f.layout, f.direction) for f in codelets["Rows<float>"].spec.fields}
    assert rows["rows"] == (FieldKind.VECTOR_LIST, "SPAN", Direction.INPUT)
    assert rows["others"] == (FieldKind.VECTOR_LIST, "DELTANELEMENTS", Direction.INPUT)
    assert rows["sums"] == (FieldKind.SCALAR_LIST, "SPAN", Direction.OUTPUT)
    assert rows["scaled"] == (FieldKind.VECTOR_LIST, "COMPACT_DELTAN", Direction.INOUT)
    assert codelets["Append"].spec.field("table").kind is FieldKind.STATE_VECTOR
    assert codelets["Append"].spec.field("table").type is FLOAT
    assert codelets["Eighths"].spec.field("total").type is QUARTER
    assert codelets["Eighths"].spec.field("total").kind is FieldKind.SCALAR


def test_sources_are_the_users_lines(codelets):
    """A codelet knows the line of its class."""
    source = codelets["SumVertex"].spec.source
    line = (FILES / "everyday.cpp").read_text().splitlines()[source.line - 1]
    assert source.file.endswith("everyday.cpp")
    assert line.startswith("class SumVertex")


@pytest.mark.slow
def test_command_lists_codelets(codelets, capsys):
    """`tremula codelets` prints a table, and with --json records."""
    files = [str(FILES / "everyday.cpp"), str(FILES / "special.cpp")]
    assert main(["codelets", *files]) == 0
    text = capsys.readouterr().out
    assert "shop::Binary<half,shop::Op::ADD>: Vertex, compute returns void, c++" in text
    assert "ONE_PTR, aligned to 8 bytes" in text
    assert "constraint elem(*a) != elem(*b)" in text
    assert main(["codelets", *files, "--json"]) == 0
    records = {record["name"]: record for record in json.loads(capsys.readouterr().out)}
    assert records["SumVertex"]["fields"][0]["type"] == "float"


@pytest.mark.slow
def test_source_text_with_flags():
    """Source may be given as text; -D reaches it and other flags are dropped."""
    text = """
    #include <poplar/Vertex.hpp>
    struct Scale : poplar::Vertex {
      poplar::InOut<TYPE> x;
      bool compute() { *x *= 2; return true; }
    };
    """
    codelets = load_cpp_codelets(text, flags="-DTYPE=short -O1 -target ipu2 -g")
    assert str(codelets["Scale"].spec.field("x").type) == "short"
    assert codelets["Scale"].library.optimise == "-O1"


def test_command_lists_python_codelets(tmp_path, capsys):
    """`tremula codelets` also takes a Python file; one without codelets is an error."""
    path = tmp_path / "mine.py"
    head = "from tremula.base.types import float32\nfrom tremula.codelets.vertex import *\n"
    head += "from tremula.codelets.vertex import Input, Output, Vertex\n"
    path.write_text(
        head + "class Double(Vertex):\n    x: Input[float32]\n    y: Output[float32]\n\n"
        "    def compute(self):\n        self.y[0] = 2 * self.x[0]\n"
    )
    assert main(["codelets", str(path)]) == 0
    assert "Double: Vertex, compute returns void, python" in capsys.readouterr().out
    path.write_text(head)
    assert main(["codelets", str(path)]) != 0
    assert "no codelet found" in capsys.readouterr().err
