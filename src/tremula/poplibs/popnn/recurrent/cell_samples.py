"""What the registry's entries of recurrent cells share: operands, tolerances, the entry itself."""

from collections.abc import Callable, Iterator

import numpy as np

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplibs.poplin.product.vertices import conv_partial
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.slicing.codelets import dynamic_slice_codelet, dynamic_update_codelet
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

Arrays = tuple[np.ndarray, ...]


def register_cell(
    name: str,
    about: str,
    function: Callable,
    reference: Callable,
    samples: Callable[[Type, np.random.Generator], Iterator[Sample]],
    *errors: ErrorCase,
) -> None:
    """Register a pass of a cell: products, element-wise arithmetic and slices in a loop."""
    register(
        Op(
            name=name,
            function=function,
            about=about,
            types=(FLOAT, HALF),
            samples=samples,
            reference=reference,
            codelets=(conv_partial, element_codelet, dynamic_slice_codelet, dynamic_update_codelet),
            errors=errors,
            tolerance={"FLOAT": 1e-5, "HALF": 2e-2},
        )
    )


def numpy_sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def operands(
    type: Type, rng: np.random.Generator, sizes: tuple[int, int, int, int], n_gates: int,
    n_states: int,
) -> Arrays:  # fmt: skip
    """X, states and weights of a cell of sizes (n_steps, n_batches, n_in, n_out)."""
    n_steps, n_batches, n_in, n_out = sizes
    shapes = [(n_steps, n_batches, n_in), *[(n_batches, n_out)] * n_states]
    shapes += [(n_gates, n_in, n_out), (n_gates, n_out, n_out), (n_gates, n_out)]
    return tuple((0.5 * rng.standard_normal(s)).astype(type.dtype) for s in shapes)


def random_gradient(
    type: Type, rng: np.random.Generator, arrays: Arrays, *, is_whole: bool
) -> np.ndarray:
    """A gradient of all outputs of a cell with these operands, or of the last step's."""
    shape = (arrays[0].shape[0], *arrays[1].shape) if is_whole else arrays[1].shape
    return rng.standard_normal(shape).astype(type.dtype)


def with_gradient(
    type: Type, rng: np.random.Generator, n_gates: int, *, is_whole: bool
) -> Arrays:  # fmt: skip
    """The operands of a training pass of a cell with one state."""
    sizes = (3, 2, 5, 4) if is_whole else (4, 3, 2, 6)
    inputs = operands(type, rng, sizes, n_gates, 1)
    return (*inputs, random_gradient(type, rng, inputs, is_whole=is_whole))


BAD_GRADIENT = np.ones((3, 1, 3), np.float32)  # of more steps than there are
