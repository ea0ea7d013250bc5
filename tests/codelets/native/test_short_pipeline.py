"""Kernels go through few of Numba's passes; what needs others goes through all."""

import ctypes

from numba import carray, types
from numba.extending import intrinsic

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


@intrinsic
def _doubled(typingctx, x):
    def codegen(context, builder, signature, args):
        plus = builder.fadd if isinstance(signature.return_type, types.Float) else builder.add
        return plus(args[0], args[0])

    return x(x), codegen


def _sum_of_doubles(values, n):
    total = _doubled(values[0])
    for i in range(n):
        total += _doubled(_doubled(values[i])) + _doubled(i)
    return total


def _last_doubled(values, n):
    return _doubled(values[n - 1]) + _doubled(n)


def test_types_of_an_intrinsic_are_found_once(monkeypatch, tmp_path):
    """Other calls of it with arguments of these types, also in other functions, have the same."""
    resolved, resolve = [], types.Function.get_call_type

    def noted(self, context, args, kws):
        resolved.extend([args] if self.typing_key is _doubled else [])
        return resolve(self, context, args, kws)

    monkeypatch.setattr("tremula.codelets.native.short_pipeline._signatures", {})
    monkeypatch.setattr(types.Function, "get_call_type", noted)
    first, _ = _compiled(_sum_of_doubles, monkeypatch, tmp_path)
    second, _ = _compiled(_last_doubled, monkeypatch, tmp_path)
    values = (ctypes.c_double * 2)(1.0, 3.0)
    assert first(values, 2) == 2.0 + (4.0 + 0) + (12.0 + 2)
    assert second(values, 2) == 6.0 + 4
    assert resolved == [(types.float64,), (types.int64,)]
