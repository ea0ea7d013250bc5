"""A Fourier transform of many signals by PopLibs: even and odd halves, products for the small ones.

    python fft.py [LENGTH]

A complex tensor is a pair of real ones. The transform of n samples is made of those of its even and
odd samples: X[k] = E[k] + w^k O[k] and X[k + n/2] = E[k] - w^k O[k]. Slices with a stride are
views, so taking the halves moves nothing; and since all signals and halves are rows of one matrix,
each level is one set of element-wise operations. At SMALL samples a matrix product takes over: that
is what the tiles are best at.
"""

import sys

import numpy as np

import tremula as tr
from tremula.poplibs import poplin, popops
from tremula.poplibs.popops.elementwise.expr import _1, _2, _3, _4, _5, _6

N_SIGNALS, SMALL = 64, 32
length = int(sys.argv[1]) if len(sys.argv) > 1 else 256


def constant(graph, values, name):
    values = np.ascontiguousarray(values, np.float32)
    tensor = graph.add_constant(tr.FLOAT, list(values.shape), values.ravel(), name)
    graph.map_linearly(tensor)
    return tensor


def direct(graph, real, imaginary, program):
    """Rows times the matrix of the transform: four real products, in one of twice the size."""
    n = real.shape[1]
    angle = -2 * np.pi / n * np.outer(np.arange(n), np.arange(n))
    c, s = np.cos(angle), np.sin(angle)
    matrix = constant(graph, np.block([[c, s], [-s, c]]), "matrix")
    both = poplin.mat_mul(graph, tr.concat([real, imaginary], 1), matrix, program, "direct")
    return both[:, :n], both[:, n:]


def transform(graph, real, imaginary, program):
    """The transforms of all rows."""
    n_rows, n = real.shape
    if n <= SMALL:
        return direct(graph, real, imaginary, program)
    halves = [tr.concat([x[:, 0::2], x[:, 1::2]], 0) for x in (real, imaginary)]
    re, im = transform(graph, *halves, program)
    angle = -2 * np.pi / n * np.arange(n // 2)
    turn = [
        constant(graph, f(angle), "turn").expand([0]).broadcast(n_rows) for f in (np.cos, np.sin)
    ]
    parts = [re[:n_rows], re[n_rows:], im[:n_rows], im[n_rows:], *turn]
    # _1, _3: even, real and imaginary; _2, _4: odd; _5, _6: cosine and sine.
    turned_re, turned_im = _2 * _5 - _4 * _6, _2 * _6 + _4 * _5
    sums = (_1 + turned_re, _1 - turned_re, _3 + turned_im, _3 - turned_im)
    a, b, c, d = (popops.map(graph, e, parts, program, f"level{n}") for e in sums)
    return tr.concat([a, b], 1), tr.concat([c, d], 1)


device = tr.IPUModel("bow", tiles_per_ipu=64).create_device()
graph, program = tr.Graph(device), tr.Sequence()
real, imaginary = (
    graph.add_variable(tr.FLOAT, [N_SIGNALS, length], name, mapping="linear")
    for name in ("real", "imaginary")
)
out_real, out_imaginary = transform(graph, real, imaginary, program)
for name, tensor in (("real", real), ("imaginary", imaginary)):
    graph.create_host_write(name, tensor)
for name, tensor in (("out real", out_real), ("out imaginary", out_imaginary)):
    graph.create_host_read(name, tensor)
engine = tr.Engine(graph, program)
engine.load(device)

random = np.random.default_rng(0)
signals = random.standard_normal((N_SIGNALS, length, 2)).astype(np.float32)
engine.write_tensor("real", signals[..., 0])
engine.write_tensor("imaginary", signals[..., 1])
engine.run()
result = engine.read_tensor("out real") + 1j * engine.read_tensor("out imaginary")

expected = np.fft.fft(signals[..., 0] + 1j * signals[..., 1])
worst = np.abs(result - expected).max() / np.abs(expected).max()
report = engine.report()
print(f"{N_SIGNALS} transforms of {length} samples, direct below {SMALL + 1}")
print(f"{report.n_compute_sets} compute sets, {report.total_cycles:,} cycles")
print("largest error below 1e-6 of the largest value:", bool(worst < 1e-6))
print("Program complete")
