"""Weights of 4 bits with a scale and a bias for each group, decompressed on tiles.

Two codes share a byte, the even column in its low half. A row's columns are cut into equal groups;
a code c of a group stands for c · scale + bias.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, UNSIGNED_CHAR, Type, int32
from tremula.codelets import Input, MultiVertex, Output, Vector
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.poplin.product.mat_mul import ones
from tremula.poplibs.poputil import replayed
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

# Derived from PopLibs' estimators: launch and start of a multi-worker cast; per four codes the nine
# slots of bytes → halves, two to take bytes apart, two to multiply and add vectors. A group's scale
# and bias are loaded and spread over vectors.
LAUNCH_CYCLES, START_SLOTS, GROUP_SLOTS = 12, 37, 6
CODES_AT_ONCE, SLOTS_AT_ONCE = 4, 9 + 2 + 2


@family
def group_decompress(element: Type) -> type:
    """Groups of 4-bit codes as numbers; workers take groups in turn."""

    class GroupDecompress(MultiVertex):
        name = f"poplin::GroupDecompress<{element}>"
        provenance = "derived"
        packed: Input[Vector[UNSIGNED_CHAR]]  # type: ignore[valid-type]
        scale: Input[Vector[element]]  # type: ignore[valid-type]
        bias: Input[Vector[element]]  # type: ignore[valid-type]
        out: Output[Vector[element]]  # type: ignore[valid-type]
        n_bytes: int32  # type: ignore[valid-type]

        def compute(self: Any, worker_id: int) -> None:
            n_bytes = self.n_bytes
            for group in range(worker_id, len(self.scale), self.n_workers):
                scale, bias = self.scale[group], self.bias[group]
                for i in range(group * n_bytes, (group + 1) * n_bytes):
                    both = self.packed[i]
                    self.out[2 * i] = (both & 15) * scale + bias
                    self.out[2 * i + 1] = (both >> 4) * scale + bias

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            n_bytes = v.state["n_bytes"].astype(np.int64)
            group = GROUP_SLOTS + SLOTS_AT_ONCE * ceil_div(2 * n_bytes, CODES_AT_ONCE)
            n_groups = ceil_div(v.sizes["scale"], chip.n_workers)
            return LAUNCH_CYCLES + chip.n_workers * (START_SLOTS + n_groups * group)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return 2 * v.sizes["out"]

    return GroupDecompress


@replayed
def group_decompressed(
    graph: Graph, packed: Tensor, scale: Tensor, bias: Tensor, sequence: Sequence, name: str = ""
) -> Tensor:
    """Numbers [rows, columns] of codes [rows, columns / 2], scales and biases [rows, groups]."""
    name = name or "groupDecompressed"
    _check(packed, scale, bias)
    n_rows, n_bytes = packed.shape
    n_groups, per_group = scale.n_elems, n_bytes // scale.shape[1]
    out = graph.add_variable(scale.type, [n_rows, 2 * n_bytes], name)
    n_parts = min(graph.target.n_tiles, n_groups)
    cuts = np.arange(n_parts + 1) * n_groups // n_parts
    begin, end = cuts[:-1], cuts[1:]
    tiles = np.arange(n_parts)
    flat = out.flatten()
    interval = 2 * begin * per_group, 2 * end * per_group
    graph.set_tile_mapping(flat, TileMapping(*interval, tiles, graph.target.n_tiles))
    fields = {
        "packed": Slices(packed.flatten(), begin * per_group, end * per_group),
        "scale": Slices(scale.flatten(), begin, end),
        "bias": Slices(bias.flatten(), begin, end),
        "out": Slices(flat, *interval),
        "n_bytes": np.full(n_parts, per_group),
    }
    run_vertices(graph, group_decompress(scale.type), fields, tiles, sequence, name)
    return out


def _check(packed: Tensor, scale: Tensor, bias: Tensor) -> None:
    shapes = f"{list(packed.shape)}, {list(scale.shape)} and {list(bias.shape)}"
    is_fit = (
        packed.rank == scale.rank == 2
        and scale.shape == bias.shape
        and packed.shape[0] == scale.shape[0]
        and scale.shape[1] > 0
        and packed.shape[1] % scale.shape[1] == 0
    )
    if not is_fit:
        raise PoplibsError(
            f"group_decompressed got codes, scales and biases of shapes {shapes}, expected "
            "[rows, bytes] and twice [rows, groups], with groups that divide the bytes.",
            source=user_source(),
            hint="two codes share a byte: a group of 64 columns has 32 bytes",
        )
    types = (packed.type, scale.type, bias.type)
    if packed.type is not UNSIGNED_CHAR or scale.type not in (FLOAT, HALF) or types[1] != types[2]:
        raise PoplibsError(
            f"group_decompressed got {types[0]} codes, {types[1]} scales and {types[2]} biases, "
            "expected unsigned char, and float or half for both others.",
            source=user_source(),
            hint="cast scales and biases to one type",
        )


__all__ = ["group_decompressed"]


# -- registry --------------------------------------------------------------------------------------


def _reference(packed: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)
    n = codes.shape[1] // scale.shape[1]
    return codes.astype(scale.dtype) * np.repeat(scale, n, 1) + np.repeat(bias, n, 1)


def _samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    for rows, groups, n_bytes in ((1, 1, 1), (5, 3, 8), (40, 2, 32)):
        packed = random.integers(0, 256, (rows, groups * n_bytes)).astype(np.uint8)
        numbers = [random.standard_normal((rows, groups)).astype(type.dtype) for _ in range(2)]
        yield Sample((packed, *numbers))


register(
    Op(
        name="poplin.group_decompressed",
        function=group_decompressed,
        about="Weights of 4 bits, with a scale and a bias per group, as numbers.",
        types=(FLOAT, HALF),
        samples=_samples,
        reference=_reference,
        codelets=(group_decompress,),
        tolerance={"FLOAT": 1e-6, "HALF": 0.0},
        errors=(
            ErrorCase(Sample(ones((4, 6), (4, 4), (4, 4))), "with groups that divide the bytes"),
            ErrorCase(Sample(ones((4, 6), (4, 3), (4, 3))), "expected unsigned char"),
        ),
    )
)  # fmt: skip
