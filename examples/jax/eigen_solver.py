"""Eigenvectors on tiles: parallel Jacobi rotations, each tile with a pair of rows.

python eigen_solver.py --size 64
"""
# Arguments when run as a test: --size 16

import argparse

import numpy as np

import tremula
import tremula.jax
from tessellate_ipu.linalg import ipu_eigh


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, help="of the matrix")
    args = parser.parse_args()

    random = np.random.default_rng(1)
    matrix = random.standard_normal((args.size, args.size)).astype(np.float32)
    matrix = (matrix + matrix.T) / 2
    solve = tremula.jax.jit(ipu_eigh)
    with tremula.configured(tiles="run"):
        vectors, values = map(np.asarray, solve(matrix))
        report = solve.report(matrix)

    scale = np.abs(values).max()
    error = np.abs(values - np.linalg.eigvalsh(matrix.astype(np.float64))).max() / scale
    residual = np.abs(matrix @ vectors - vectors * values).max() / scale
    print(f"{args.size} eigenvalues: error {error:.0e}, residual {residual:.0e} of the largest")
    print("accurate to 1e-4:", bool(max(error, residual) < 1e-4))
    milliseconds = 1e3 * report.total_cycles / tremula.chip("bow").clock_hz
    print(f"on a Bow: {report.total_cycles:,} cycles, {milliseconds:.2f} ms")


if __name__ == "__main__":
    main()
