"""What goes wrong with a C++ codelet is said in the user's names, at the user's line."""

from argparse import Namespace

import pytest

from tremula.base.errors import (
    GraphObjectCreationError,
    GraphObjectLoadError,
    GraphProgramCompilationError,
    LinkError,
)
from tremula.codelets.cpp import load_cpp_codelets
from tremula.commands import codelets as codelets_command

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

HEAD = "#include <poplar/Vertex.hpp>\nusing namespace poplar;\n"


def vertex(body: str, code: str = "return true;", before: str = "") -> str:
    return (
        f"{HEAD}{before}class V : public Vertex {{ public:\n{body}\nbool compute() {{ {code} }} }};"
    )


@pytest.mark.parametrize(
    ("field", "name", "type_text"),
    [
        ("unsigned a[100];", "a", "unsigned int [100]"),
        ("float *p;", "p", "float*"),
        ("Input<S> s;", "s", "poplar::Input<S>"),
        ("Vector<Vector<Vector<int>>> v;", "v", "poplar::Vector<poplar::Vector<"),
        ("Output<float> &r;", "r", "Output < float > &"),
    ],
)
def test_unsupported_field_types(field, name, type_text):
    """Structs, arrays, pointers, doubles and deep nests are refused with popc's words."""
    with pytest.raises(GraphProgramCompilationError) as raised:
        load_cpp_codelets(vertex(field, before="struct S { int x; };\n"))
    assert f"Field 'V.{name}' has unsupported field type '{type_text}" in str(raised.value)
    assert raised.value.source.line == 5
    assert "fields are numbers" in raised.value.hint


def test_compile_error_names_the_users_line(tmp_path):
    """A mistake in compute gives the compiler's first error and the file and line of the user."""
    path = tmp_path / "wrong.cpp"
    path.write_text(vertex("Input<Vector<float>> x;", "return y[0] > 1;"))
    with pytest.raises(GraphProgramCompilationError, match="'y' was not declared") as raised:
        load_cpp_codelets(path)
    assert str(raised.value.source) == f"{path}:5"


def test_input_cannot_be_written_and_one_ptr_has_no_size():
    """Writing an Input and asking a ONE_PTR for its size do not compile, at the user's line."""
    with pytest.raises(GraphProgramCompilationError, match="read-only") as raised:
        load_cpp_codelets(vertex("Input<Vector<float>> x;", "x[0] = 1; return true;"))
    assert raised.value.source.line == 5
    with pytest.raises(GraphProgramCompilationError, match="has no size") as raised:
        load_cpp_codelets(
            vertex("Input<Vector<float, VectorLayout::ONE_PTR>> x;", "return x.size();")
        )
    assert raised.value.source.line == 5


def test_missing_include_and_missing_file(tmp_path):
    """A missing header asks for -I; a missing file says where it was looked for."""
    with pytest.raises(GraphProgramCompilationError, match=r"nowhere\.hpp(.|\n)*-I") as raised:
        load_cpp_codelets(HEAD + '#include "nowhere.hpp"\n')
    assert raised.value.source.line == 3
    with pytest.raises(GraphObjectLoadError, match=r"does not exist \(looked in"):
        load_cpp_codelets(tmp_path / "none.cpp")


def test_undefined_symbols():
    """There is no heap and nothing undefined: both are link errors that name the symbol."""
    with pytest.raises(LinkError, match=r"undefined symbol _Zn[am]") as raised:
        load_cpp_codelets(vertex("Output<float> x;", "*x = *new float[int(*x)]; return true;"))
    assert "no heap" in raised.value.hint
    assert raised.value.source.line == 5
    with pytest.raises(LinkError, match=r"undefined symbol _Z6helperf") as raised:
        load_cpp_codelets(vertex("Output<float> x;", "return helper(*x);", "bool helper(float);\n"))
    assert raised.value.source.line == 3


def test_what_is_missing_is_found_nearby(tmp_path, capsys):
    """A header in a folder above asks for its -I, a symbol for the file beside that defines it."""
    (tmp_path / "include" / "lib").mkdir(parents=True)
    (tmp_path / "include" / "lib" / "far.hpp").write_text("float helper(float);\n")
    (tmp_path / "codelets").mkdir()
    file = tmp_path / "codelets" / "a.cpp"
    file.write_text(
        vertex("Output<float> x;", "*x = helper(1); return true;", '#include "lib/far.hpp"\n')
    )
    include = f"-I{tmp_path / 'include'}"
    with pytest.raises(GraphProgramCompilationError) as raised:
        load_cpp_codelets(file)
    assert include in raised.value.hint
    (tmp_path / "codelets" / "b.cpp").write_text("float helper(float x)\n{ return x; }\n")
    with pytest.raises(LinkError) as raised:
        load_cpp_codelets(file, include)
    assert "add_codelets(['a.cpp', 'b.cpp'])" in raised.value.hint
    assert load_cpp_codelets([file, tmp_path / "codelets" / "b.cpp"], include)
    with pytest.raises(LinkError):
        codelets_command.run(
            Namespace(files=[str(file)], flags=include, json=False, template=False)
        )
    assert "undefined reference" in capsys.readouterr().err


def test_no_codelets():
    """A file without vertices, or with templates never instantiated, says what to write."""
    with pytest.raises(GraphObjectCreationError, match="template class MyVertex<float>;"):
        load_cpp_codelets(HEAD + "template <class T> struct V : Vertex { void compute() {} };")


def test_missing_compiler(monkeypatch):
    """Without g++ the error says how to install it."""
    monkeypatch.setenv("TREMULA_CXX", "no-such-compiler")
    with pytest.raises(
        GraphProgramCompilationError, match=r"'no-such-compiler' was not(.|\n)*apt install"
    ):
        load_cpp_codelets(vertex("Output<float> x;"))
