"""A Fourier transform of many signals by PopLibs: even and odd halves, products for the small ones.

    python fft.py [LENGTH]

The transform itself is tremula/garden/applications/fourier_transform/program.py;
`tremula garden run fourier-transform` looks for the best size at which products take over.
"""

import sys

import numpy as np

from tremula.garden.applications.fourier_transform.program import (
    DIRECT_BELOW,
    transform_engine,
    transformed,
)

N_SIGNALS = 64
length = int(sys.argv[1]) if len(sys.argv) > 1 else 256

engine = transform_engine(N_SIGNALS, length, n_tiles=64).load()
random = np.random.default_rng(0)
parts = random.standard_normal((N_SIGNALS, length, 2)).astype(np.float32)
signals = parts[..., 0] + 1j * parts[..., 1]
result = transformed(engine, signals)

expected = np.fft.fft(signals)
worst = np.abs(result - expected).max() / np.abs(expected).max()
report = engine.report()
print(f"{N_SIGNALS} transforms of {length} samples, direct below {DIRECT_BELOW + 1}")
print(f"{report.n_compute_sets} compute sets, {report.total_cycles:,} cycles")
print("largest error below 1e-6 of the largest value:", bool(worst < 1e-6))
print("Program complete")
