"""Many Fourier transforms at once: even and odd halves, matrix products for the small ones.

A complex tensor is a pair of real ones. The transform of n samples is made of those of its even and
odd samples: X[k] = E[k] + w^k O[k] and X[k + n/2] = E[k] - w^k O[k]. Slices with a stride are
views, so taking the halves moves nothing; and since all signals and halves are rows of one matrix,
each level is one set of element-wise operations. Up to `direct_below` samples a matrix product
takes over: that is what the tiles are best at.
"""

import numpy as np

import tremula as tr
from tremula.base.errors import InvalidOption
from tremula.poplibs import poplin, popops
from tremula.poplibs.popops.elementwise.expr import _1, _2, _3, _4, _5, _6

DIRECT_BELOW = 32  # samples of a transform that is a product


def transform(
    graph: tr.Graph,
    real: tr.Tensor,
    imaginary: tr.Tensor,
    program: tr.Sequence,
    direct_below: int = DIRECT_BELOW,
) -> tuple[tr.Tensor, tr.Tensor]:
    """The transforms of all rows."""
    n_rows, n = real.shape
    if n <= direct_below:
        return _direct(graph, real, imaginary, program)
    if n % 2:
        raise InvalidOption(
            f"a transform of {n} samples cannot be halved.",
            hint=f"take a length that is at most {direct_below} times a power of two",
        )
    halves = [tr.concat([x[:, 0::2], x[:, 1::2]], 0) for x in (real, imaginary)]
    re, im = transform(graph, halves[0], halves[1], program, direct_below)
    angle = -2 * np.pi / n * np.arange(n // 2)
    turn = [
        _constant(graph, f(angle), "turn").expand([0]).broadcast(n_rows) for f in (np.cos, np.sin)
    ]
    parts = [re[:n_rows], re[n_rows:], im[:n_rows], im[n_rows:], *turn]
    # _1, _3: even, real and imaginary; _2, _4: odd; _5, _6: cosine and sine.
    turned_re, turned_im = _2 * _5 - _4 * _6, _2 * _6 + _4 * _5
    sums = (_1 + turned_re, _1 - turned_re, _3 + turned_im, _3 - turned_im)
    a, b, c, d = (popops.map(graph, e, parts, program, f"level{n}") for e in sums)
    return tr.concat([a, b], 1), tr.concat([c, d], 1)


def _direct(
    graph: tr.Graph, real: tr.Tensor, imaginary: tr.Tensor, program: tr.Sequence
) -> tuple[tr.Tensor, tr.Tensor]:
    """Rows times the matrix of the transform: four real products, in one of twice the size."""
    n = real.shape[1]
    angle = -2 * np.pi / n * np.outer(np.arange(n), np.arange(n))
    c, s = np.cos(angle), np.sin(angle)
    matrix = _constant(graph, np.block([[c, s], [-s, c]]), "matrix")
    both = poplin.mat_mul(graph, tr.concat([real, imaginary], 1), matrix, program, "direct")
    return both[:, :n], both[:, n:]


def _constant(graph: tr.Graph, values: np.ndarray, name: str) -> tr.Tensor:
    values = np.ascontiguousarray(values, np.float32)
    tensor = graph.add_constant(tr.FLOAT, list(values.shape), values.ravel(), name)
    graph.map_linearly(tensor)
    return tensor


def transform_engine(
    n_signals: int, length: int, n_tiles: int, direct_below: int = DIRECT_BELOW, chip: str = "bow"
) -> tr.Engine:
    """Handles: real and imaginary to write, `out real` and `out imaginary` to read."""
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=n_tiles).create_device())
    program = tr.Sequence()
    signals = [
        graph.add_variable(tr.FLOAT, [n_signals, length], name, mapping="linear")
        for name in ("real", "imaginary")
    ]
    results = transform(graph, signals[0], signals[1], program, direct_below)
    for name, signal, result in zip(("real", "imaginary"), signals, results, strict=True):
        graph.create_host_write(name, signal)
        graph.create_host_read(f"out {name}", result)
    return tr.Engine(graph, program)


def transformed(engine: tr.Engine, signals: np.ndarray) -> np.ndarray:
    """The transforms of complex signals by an engine of theirs."""
    engine.write_tensor("real", np.ascontiguousarray(np.real(signals), np.float32))
    engine.write_tensor("imaginary", np.ascontiguousarray(np.imag(signals), np.float32))
    engine.run()
    return engine.read_tensor("out real") + 1j * engine.read_tensor("out imaginary")
