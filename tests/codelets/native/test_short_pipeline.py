"""Kernels go through few of Numba's passes; what needs others goes through all."""

import ctypes

from numba import carray, types

from tremula.codelets.native.short_pipeline import inner
from tremula.codelets.native.stored_code import callback

_PAIR = (2, 3)


@inner(nogil=True)
def _weighted(x, y):
    return _PAIR[0] * x + _PAIR[1] * y


def _sum_of_weights(values, n):
    total = 0.0
    for i, y in enumerate(carray(values, n)):
        total += _weighted(i, y) if y > 0 else 1
    return total


def _sum_by_a_closure(values, n):
    scale = 2.0

    def scaled(x):
        return scale * x

    return scaled(carray(values, n)[0])


def _compiled(function, monkeypatch, tmp_path):
    """The function as C calls it, and the names of those for which all passes were necessary."""
    names = []
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(
        "numba.core.typed_passes.NopythonRewrites.run_pass",
        lambda _, state: names.append(state.func_id.func_name) or False,
    )
    signature = types.float64(types.CPointer(types.float64), types.int64)
    return callback(signature)(function).ctypes, names


def test_loops_over_numbers_need_few_passes(monkeypatch, tmp_path):
    """Loops, branches, tuples and functions are compiled without Numba's other passes."""
    compiled, names = _compiled(_sum_of_weights, monkeypatch, tmp_path)
    values = (ctypes.c_double * 3)(1.0, -1.0, 2.0)
    assert compiled(values, 3) == 3.0 + 1.0 + (4.0 + 6.0)
    assert not {"_weighted", "_sum_of_weights"} & set(names)


def test_what_needs_more_gets_all(monkeypatch, tmp_path):
    """A closure is inlined by a pass that kernels do without: the function is compiled with it."""
    compiled, names = _compiled(_sum_by_a_closure, monkeypatch, tmp_path)
    assert compiled((ctypes.c_double * 1)(4.0), 1) == 8.0
    assert "_sum_by_a_closure" in names
