"""C++ kernels compute what NumPy computes, for every kind of field and base class."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest


@pytest.mark.slow
def test_range_for_and_scalar_output(codelets, call):
    """A range-for over an Input and writes through a scalar Output sum each row."""
    rows = [{"in": np.arange(n), "out": 9.0} for n in (4, 1, 0)]
    assert np.concatenate(call(codelets["SumVertex"], rows).fields["out"]).tolist() == [6, 0, 0]


@pytest.mark.slow
def test_private_fields_convert_and_compute_returns_a_bool(codelets, call):
    """Private scalar edges convert to their numbers; one false row makes the kernel return 0."""
    done = call(codelets["Counting"], [{"iterations": 1, "limit": 5}])
    assert done.all_true
    assert done.fields["iterations"][0] == 2
    done = call(
        codelets["Counting"], [{"iterations": 1, "limit": 5}, {"iterations": 4, "limit": 5}]
    )
    assert not done.all_true


def test_arrow_size_and_trailing_return_type(codelets, call):
    """`x->size()` works and `auto compute() -> bool` counts as returning bool."""
    done = call(codelets["Increment"], [{"x": [1, 2, 3], "y": [0, 0, 0]}])
    assert done.fields["y"][0].tolist() == [2, 3, 4]
    assert codelets["Increment"].spec.returns_bool


@pytest.mark.parametrize(
    ("name", "dtype"), [("float", "f4"), ("half", "f2"), ("unsigned int", "u4"), ("short", "i2")]
)
def test_templates_from_a_macro(codelets, call, name, dtype):
    """Explicit instantiations made by a macro have Poplar's names and compute in their type."""
    a, b, bias = (np.array(v, dtype) for v in ([1, 2, 3], [5, 7, 9], 2))
    rows = [{"a": a, "b": b, "out": np.zeros(3), "bias": bias}]
    added = call(codelets[f"shop::Binary<{name},shop::Op::ADD>"], rows).fields["out"][0]
    multiplied = call(codelets[f"shop::Binary<{name},shop::Op::MULTIPLY>"], rows).fields["out"][0]
    np.testing.assert_array_equal(added, a + b + bias)
    np.testing.assert_array_equal(multiplied, a * b + bias)


def test_state_persists_and_constants_do_not_change(codelets, call):
    """Plain fields are read from and written back to their column; state vectors are tables."""
    row = {"log": np.zeros(3), "table": [10, 20], "n_calls": 1, "scale": 3, "offset": 0.5}
    done = call(codelets["Append"], [row, row | {"n_calls": 0}])
    assert done.fields["log"][0].tolist() == [0, 60.5, 0]
    assert done.fields["n_calls"] == [2, 1]
    assert done.fields["scale"] == [3, 3]
    assert not done.all_true  # the first row returned false


@pytest.mark.parametrize("name", ["float", "int"])
def test_vectors_of_edges_and_lists(codelets, call, name):
    """Vector<Input<Vector>>, VectorList and Vector<Output> see their sub-vectors, row by row."""
    first = {
        "rows": [[1, 2], [3]],
        "others": [[10], [20, 30]],
        "sums": [0, 0],
        "scaled": [[1], [2]],
    }
    second = {"rows": [[5]], "others": [[6]], "sums": [0], "scaled": [[7, 8, 9]]}
    done = call(codelets[f"Rows<{name}>"], [first, second])
    assert [np.concatenate(s).tolist() for s in done.fields["sums"]] == [[13, 53], [11]]
    assert [[s.tolist() for s in row] for row in done.fields["scaled"]] == [
        [[2], [4]],
        [[14, 16, 18]],
    ]
    assert done.all_true


def test_inherited_fields(codelets, call):
    """Fields of a middle class come first, and compute may be defined outside the class."""
    area = codelets["Area"]
    assert [f.name for f in area.spec.fields] == ["width", "height", "area"]
    assert call(area, [{"width": 3, "height": 4, "area": 0}]).fields["area"][0] == 12


def test_half_rounds_after_every_operation(codelets, call):
    """half has literals, limits and functions, and each operation rounds to 16 bits."""
    x = np.linspace(0, 8, 33).astype(np.float16)
    expected = np.sqrt(x) * np.float16(0.5) + np.exp(-x.astype(np.float32)).astype(np.float16)
    expected = np.fmax(expected, np.float16(0.25))
    done = call(codelets["Halves"], [{"x": [*x, -1], "y": np.zeros(34)}])
    np.testing.assert_array_equal(done.fields["y"][0][:33], expected)
    assert done.fields["y"][0][33] == 65504


def test_worker_0_runs_last(codelets, call):
    """Worker 0 sees the shared memory the other five have written."""
    x = np.arange(20, dtype=np.float32)
    done = call(codelets["Norm"], [{"x": x, "n": 20, "result": 0}])
    np.testing.assert_allclose(done.fields["result"][0], np.linalg.norm(x), rtol=1e-6)


def test_conditional_bases(codelets, call):
    """The base class decides which compute runs, also when an undefined one is declared."""
    done = call(codelets["Mark<int,false>"], [{"marks": np.zeros(6)}])
    assert done.fields["marks"][0].tolist() == [1, 2, 3, 4, 5, 6]
    assert call(codelets["Either<true>"], [{"x": 1}]).fields["x"][0] == 11
    assert call(codelets["Either<false>"], [{"x": 1}]).fields["x"][0] == 21
    bases = [
        codelets[n].spec.base.value for n in ("Mark<int,false>", "Either<true>", "Either<false>")
    ]
    assert bases == ["MultiVertex", "SupervisorVertex", "Vertex"]


def test_intrinsics_on_short_vectors(codelets, call):
    """load_postinc, store_postinc, fma and functions work on float2 and half4."""
    x, h = np.array([0.5, 1, 2, 3], np.float32), np.array([-2, -1, 0, 1], np.float16)
    row = {"x": x, "y": np.zeros(4), "h": h, "g": np.zeros(4), "n": 4}
    done = call(codelets["Vectors"], [row])
    assert done.fields["y"][0].tolist() == [1.5, 3, 3, 3]
    assert done.all_true
    expected = np.fmax(np.exp(h.astype(np.float32)).astype(np.float16) * h, h)
    np.testing.assert_array_equal(done.fields["g"][0], expected)


def test_full_specialisation_and_64_bit(codelets, call):
    """A full specialisation has its own fields; `long long` is an element type."""
    assert call(codelets["Pick<char>"], [{"out": 0, "letter": 65}]).fields["out"][0] == 65
    assert call(codelets["Pick<long long>"], [{"out": 0}]).fields["out"][0] == 1


def test_bits_of_a_half(codelets, call):
    """IeeeHalf shows and takes the bits of a half."""
    done = call(codelets["BitsOfHalf"], [{"x": 1.5, "bits": 0}])
    assert done.all_true
    assert done.fields["bits"][0] == np.float16(1.5).view(np.uint16)


def test_threads_take_turns_with_statics(codelets, call):
    """Rows run by several threads at once do not mix what they leave in shared statics."""
    rows = [{"x": np.full(60, value), "n": 60, "result": 0} for value in range(1, 40)]
    with ThreadPoolExecutor(4) as pool:
        many = list(pool.map(lambda _: call(codelets["Norm"], rows), range(20)))
    expected = np.arange(1, 40) * np.sqrt(60)
    for done in many:
        np.testing.assert_allclose(np.concatenate(done.fields["result"]), expected, rtol=1e-6)
