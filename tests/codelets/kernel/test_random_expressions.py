"""Random expressions over float32, half and integers: native code and plain Python agree."""

import random

import numpy as np
import pytest

from tremula.base.types import float32, half, int32
from tremula.codelets import Input, Output, Vector, Vertex, codelet_of

N_EXPRESSIONS = 30


def expression(rng: random.Random, depth: int) -> str:
    """An expression whose value Python computes in the machine's types.

    Floats that meet only integers are left out: plain Python would compute those in 64 bits. The
    two sides of a choice have one type: in native code a choice between half and float is a float.
    """
    if depth == 0:
        return rng.choice(("f", "g", "h", "k", "i", "3"))
    a, b = expression(rng, depth - 1), expression(rng, depth - 1)
    forms = (
        f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / f)", f"({a} / h)", f"(-{a})",
        f"min(float32({a}), g)", f"max(h, half({b}))", f"abs({a})",
        f"(h if f < {b} else half({b}))",
        f"half({a})", f"float32({a})", f"(f * 0.1 + {a})", f"(h * 0.1 - {b})",
        f"(i // 3 + {a})", f"(i % 5 - {b})", f"({a} + (i << 2) + (j & 6))",
    )  # fmt: skip
    return rng.choice(forms)


def codelet_with(seed: int, folder):
    """A codelet that stores many random expressions as floats and as halves."""
    rng = random.Random(seed)
    lines = [
        "class Random(Vertex):",
        "    f_: Input[float32]\n    g_: Input[float32]\n    h_: Input[half]\n    k_: Input[half]",
        "    i_: Input[int32]\n    j_: Input[int32]",
        "    out: Output[Vector[float32]]\n    halfs: Output[Vector[half]]\n",
        "    def compute(self):",
        "        f, g, h, k, i, j = self.f_, self.g_, self.h_, self.k_, self.i_, self.j_",
    ]
    for n in range(N_EXPRESSIONS):
        text = expression(rng, rng.randrange(1, 4))
        lines += [f"        self.out[{n}] = {text}", f"        self.halfs[{n}] = {text}"]
    path = folder / f"random_{seed}.py"
    path.write_text("\n".join(lines) + "\n")
    names = (Vertex, Input, Output, Vector)
    scope = {c.__name__: c for c in names} | {"float32": float32, "half": half, "int32": int32}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return codelet_of(scope["Random"]), lines


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_random_expressions(make_table, tmp_path, seed):
    """Every expression leaves the same bits in float32 and half, in native code and in Python."""
    codelet, lines = codelet_with(seed, tmp_path)
    native = make_table(codelet, 30, seed, {"out": N_EXPRESSIONS, "halfs": N_EXPRESSIONS})
    python = native.copy()
    native.run()
    with np.errstate(all="ignore"):
        python.interpret()
    for name, first in (("out", 6), ("halfs", 7)):
        got, wanted = (t.values(name).reshape(30, -1) for t in (native, python))
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        wrong = np.flatnonzero(~same.all(0))
        assert not len(wrong), [lines[first + 2 * n] for n in wrong]
