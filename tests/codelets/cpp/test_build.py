"""Builds are cached by content, saved codelets rebuild themselves, and counting counts."""

import json
import threading

import numpy as np
import pytest

from tremula.base.errors import GraphProgramCompilationError, MissingPerfEstimate
from tremula.base.provenance import Provenance
from tremula.codelets.cpp import build, cpp_codelet_from_dict, load_cpp_codelets
from tremula.codelets.cpp.codelet import prepare_kernels
from tremula.codelets.cpp.counting import count_blocks
from tremula.codelets.cpp.toolchain import Compiler

pytestmark = pytest.mark.slow


@pytest.fixture
def compilations(own_cache, monkeypatch):
    """Counts runs of the compiler that make objects or link, in a process that knows no library."""
    made, run = [], Compiler.run

    def counting_run(self, arguments, text=""):
        if "-c" in arguments or "-shared" in arguments:
            made.append(arguments)
        return run(self, arguments, text)

    monkeypatch.setattr(Compiler, "run", counting_run)
    monkeypatch.setattr(build, "_libraries", {})
    return made


def source(n: int, body: str = "*x += N;") -> str:
    """A template with n instantiations."""
    lines = [f"template class Add<{i}>;" for i in range(n)]
    return (
        "#include <poplar/Vertex.hpp>\nusing namespace poplar;\n"
        "template <int N> class Add : public Vertex {\n"
        f"  InOut<int> x; public: void compute() {{ {body} }} }};\n" + "\n".join(lines)
    )


def test_same_content_is_compiled_once(compilations, tmp_path, monkeypatch):
    """A second process, or the same code at another path, finds the shared object in the cache."""
    for name in ("a.cpp", "b.cpp"):
        (tmp_path / name).write_text(source(1))
    first = load_cpp_codelets(tmp_path / "a.cpp")["Add<0>"]
    assert len(compilations) == 2  # one object, one link
    monkeypatch.setattr(build, "_libraries", {})  # as in a new process
    second = load_cpp_codelets(tmp_path / "b.cpp")["Add<0>"]
    assert second.kernel_address()
    assert len(compilations) == 2
    assert first.content_hash() == second.content_hash()
    third = load_cpp_codelets(tmp_path / "a.cpp", flags="-O1")["Add<0>"]
    assert len(compilations) == 4
    assert third.content_hash() != first.content_hash()


def test_of_many_instantiations_only_those_asked_for_are_compiled(compilations, call, monkeypatch):
    """Loading a large file describes its vertices; kernels come when they are asked for."""
    monkeypatch.setattr(build, "N_AT_ONCE", 8)
    monkeypatch.setattr(build.os, "cpu_count", lambda: 2)
    text = source(9, "*x += helper(N);").replace("template", "int helper(int n);\ntemplate", 1)
    helper = "int helper(int n) { return n; }\n"
    codelets = load_cpp_codelets([text, helper])
    assert len(codelets) == 9
    assert len(compilations) == 2 * 2 + 1  # two parts of each file, and linking
    compilations.clear()
    prepare_kernels([codelets[f"Add<{i}>"] for i in range(6)], is_counted=False, n_workers=6)
    assert len(compilations) == 2 + 1 + 1
    for i in (0, 1, 5):
        assert call(codelets[f"Add<{i}>"], [{"x": 5}]).fields["x"][0] == 5 + i
    assert len(compilations) == 4
    assert call(codelets["Add<8>"], [{"x": 5}]).fields["x"][0] == 13
    assert call(codelets["Add<8>"], [{"x": 5}], is_counted=True).cycles[0] > 0
    compilations.clear()
    build._libraries.clear()  # as a new process
    again = load_cpp_codelets([text, helper])
    for i in (3, 8):
        assert call(again[f"Add<{i}>"], [{"x": 5}]).fields["x"][0] == 5 + i
    assert not compilations


def test_vertices_with_shared_statics_are_compiled_together(compilations, call, monkeypatch):
    """However many there are: memory that they share must be one."""
    monkeypatch.setattr(build, "N_AT_ONCE", 1)
    codelets = load_cpp_codelets(
        "static int shared = 0;\n" + source(3, "shared += N; *x = shared;")
    )
    assert call(codelets["Add<1>"], [{"x": 0}]).fields["x"][0] == 1
    assert call(codelets["Add<2>"], [{"x": 0}]).fields["x"][0] == 3


def test_builders_do_not_disturb_each_other(compilations, own_cache):
    """Two builders of one content, as two processes would be, both succeed and leave one file."""
    text = source(1, "*x -= N;")
    result = []

    def build_afresh():
        library = load_cpp_codelets(text)["Add<0>"].library
        result.append(build.Library(library.units, library.optimise, library.key).table())

    threads = [threading.Thread(target=build_afresh) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert result[0] == result[1]
    assert not list(own_cache.glob("cpp/*.tmp"))


def test_saved_codelet_compiles_when_first_used(compilations, call):
    """A codelet survives JSON; nothing is compiled until its kernel is asked for."""
    original = load_cpp_codelets(source(2, "*x = *x * N;"))["Add<1>"]
    saved = json.loads(json.dumps(original.to_dict()))
    assert len(saved["units"][0]["text"]) < 2000  # headers of others are not embedded
    build._libraries.clear()
    compilations.clear()
    copy = cpp_codelet_from_dict(saved)
    assert copy.spec == original.spec
    assert copy.content_hash() == original.content_hash()
    assert not compilations
    assert call(copy, [{"x": 7}]).fields["x"][0] == 7
    with pytest.raises(GraphProgramCompilationError, match="only -O… is allowed"):
        cpp_codelet_from_dict(saved | {"optimise": "-fplugin=x.so"})


def test_codelets_of_one_file_share_a_library(codelets):
    """All codelets of a file are kernels of one library."""
    assert len({codelet.library.key for codelet in codelets.values()}) == 1


def test_counted_kernels_count_instructions(codelets, call):
    """Counts grow by the same number of instructions per element, and results are the same."""
    rows = [{"in": np.ones(n), "out": 0} for n in (10, 20, 40)]
    done = call(codelets["SumVertex"], rows, is_counted=True)
    short, middle, long = done.cycles
    assert long - middle == 2 * (middle - short)
    assert 2 <= (middle - short) / 10 <= 12
    assert np.concatenate(done.fields["out"]).tolist() == [10, 20, 40]


def test_counted_multi_vertex_is_in_tile_cycles(codelets, call):
    """A MultiVertex costs six times its longest worker."""
    rows = [{"x": np.ones(n), "n": n, "result": 0} for n in (6, 12, 13)]
    cycles = call(codelets["Norm"], rows, is_counted=True).cycles
    assert (cycles % 6 == 0).all()
    assert cycles[0] < cycles[1] < cycles[2]


def test_cost_before_running_is_missing(codelets):
    """Without data there is no cost, and the error says how to get one."""
    codelet = codelets["SumVertex"]
    assert codelet.is_data_dependent
    assert codelet.provenance is Provenance.PLACEHOLDER
    with pytest.raises(MissingPerfEstimate, match="run once with profiling"):
        codelet.cycles(None)


def test_blocks_are_counted_from_assembly():
    """Each call is renamed to the number of instructions of its block."""
    call = "\tcall\t__sanitizer_cov_trace_pc"
    first = ["f:", "\t.cfi_startproc", "\tpush\tx", call, "\tadd\ta, b", "\tjne\t.L2"]
    second, third = [call, "\tret"], [".L2:", call, "\tmov\ta, b", ".L3:", "\tret"]
    assembly = "\n".join(first + second + third)
    rewritten, counts = count_blocks(assembly)
    assert [w for w in rewritten.split() if "count_" in w] == [
        f"tremula_count_{n}" for n in (3, 1, 2)
    ]
    assert counts == {1, 2, 3}
