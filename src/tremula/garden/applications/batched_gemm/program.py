"""Batched products with PopLibs: one grouped product for all, or one product after another.

A complex matrix is a pair of real ones. Its product is made of four real products, or of three by
Gauss's trick, which trades one product for five additions of matrices:

    re = P1 - P3,  im = P1 + P2   with   P1 = (ar + ai) br,  P2 = ar (bi - br),  P3 = ai (br + bi)
"""

from typing import Literal

import numpy as np

import tremula as tr
from tremula.base.errors import InvalidOption
from tremula.poplibs import poplin, popops

Way = Literal["grouped", "one by one"]
ComplexWay = Literal["four products", "three products"]


def gemm_engine(
    n_problems: int,
    shape: tuple[int, int, int],
    n_tiles: int,
    *,
    element: tr.Type = tr.FLOAT,
    way: Way = "grouped",
    chip: str = "bow",
) -> tr.Engine:
    """[g, m, k] x [g, k, n] for shape (m, k, n). Handles: a and b to write, c to read."""
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=n_tiles).create_device())
    program = tr.Sequence()
    a, b = _operands(graph, n_problems, shape, element)
    if way == "grouped":
        c = poplin.mat_mul_grouped(graph, a, b, program, "batch", partials_type=tr.FLOAT)
    else:
        products = [
            poplin.mat_mul(graph, a[i], b[i], program, "one", partials_type=tr.FLOAT)
            for i in range(n_problems)
        ]
        c = tr.concat([product.expand([0]) for product in products], 0)
    _connect(graph, {"a": a, "b": b}, {"c": c})
    return tr.Engine(graph, program)


def complex_gemm_engine(
    n_problems: int,
    shape: tuple[int, int, int],
    n_tiles: int,
    *,
    way: ComplexWay = "four products",
    chip: str = "bow",
) -> tr.Engine:
    """Complex products as four real ones. Handles: ar, ai, br, bi to write, cr, ci to read."""
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=n_tiles).create_device())
    program = tr.Sequence()
    of_way = _four_products if way == "four products" else _three_products
    operands, results = of_way(graph, n_problems, shape, program)
    _connect(
        graph,
        dict(zip(("ar", "ai", "br", "bi"), operands, strict=True)),
        dict(zip(("cr", "ci"), results, strict=True)),
    )
    return tr.Engine(graph, program)


Tensors = tuple[tr.Tensor, ...]


def _four_products(
    graph: tr.Graph, n_problems: int, shape: tuple[int, int, int], program: tr.Sequence
) -> tuple[Tensors, Tensors]:
    """One product of twice the height and depth: [[ar, -ai], [ai, ar]] x [[br], [bi]]."""
    m, k, n = shape
    ar, _ = _operands(graph, n_problems, shape, tr.FLOAT)
    ai, _ = _operands(graph, n_problems, shape, tr.FLOAT)
    _, both = _operands(graph, n_problems, (2 * m, 2 * k, n), tr.FLOAT)
    negative = popops.neg(graph, ai, program, "negative")
    left = tr.concat([tr.concat([ar, negative], 2), tr.concat([ai, ar], 2)], 1)
    product = poplin.mat_mul_grouped(graph, left, both, program, "batch")
    return (ar, ai, both[:, :k], both[:, k:]), (product[:, :m], product[:, m:])


def _three_products(
    graph: tr.Graph, n_problems: int, shape: tuple[int, int, int], program: tr.Sequence
) -> tuple[Tensors, Tensors]:
    """Gauss's trick: a batch three times as long."""
    ar, br = _operands(graph, n_problems, shape, tr.FLOAT)
    ai, bi = _operands(graph, n_problems, shape, tr.FLOAT)
    lefts = [popops.add(graph, ar, ai, program, "sum"), ar, ai]
    difference = popops.sub(graph, bi, br, program, "difference")
    rights = [br, difference, popops.add(graph, br, bi, program, "sum")]
    products = poplin.mat_mul_grouped(
        graph, tr.concat(lefts, 0), tr.concat(rights, 0), program, "batch"
    )
    first, second, third = (products[i * n_problems : (i + 1) * n_problems] for i in range(3))
    real = popops.sub(graph, first, third, program, "real")
    return (ar, ai, br, bi), (real, popops.add(graph, first, second, program, "imaginary"))


def _operands(
    graph: tr.Graph, n_problems: int, shape: tuple[int, int, int], element: tr.Type
) -> tuple[tr.Tensor, tr.Tensor]:
    m, k, n = shape
    if min(n_problems, m, k, n) < 1:
        raise InvalidOption(
            f"{n_problems} products of {m} × {k} × {n} are none.", hint="take sizes of at least 1"
        )
    shapes = (n_problems, m, k), (n_problems, k, n)
    a = poplin.create_mat_mul_grouped_input_lhs(graph, element, *shapes, "a")
    b = poplin.create_mat_mul_grouped_input_rhs(graph, element, *shapes, "b")
    return a, b


def _connect(graph: tr.Graph, written: dict[str, tr.Tensor], read: dict[str, tr.Tensor]) -> None:
    for name, tensor in written.items():
        graph.create_host_write(name, tensor)
    for name, tensor in read.items():
        graph.create_host_read(name, tensor)


def multiplied(engine: tr.Engine, **operands: np.ndarray) -> dict[str, np.ndarray]:
    """Write the operands by their handles, run, read the results."""
    for name, values in operands.items():
        engine.write_tensor(name, values)
    engine.run()
    names = ("cr", "ci") if "ar" in operands else ("c",)
    return {name: engine.read_tensor(name) for name in names}
