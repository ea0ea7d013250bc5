"""One scalar per row: selected by an index, or decremented; and normalised images."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_CHAR, UNSIGNED_INT, Type, uint32
from tremula.codelets import InOut, Input, Output, Vector, Vertex
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.families import family
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.elementwise.expr import Cast, _1, _2, _3
from tremula.poplibs.popops.elementwise.fill import zero
from tremula.poplibs.popops.elementwise.map import map as map_expr
from tremula.poplibs.popops.row_parts import one_each, row_parts
from tremula.poplibs.poputil import is_writeable
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

FLOATS = (FLOAT, HALF)
INDEX_TYPES = (UNSIGNED_INT, INT)
ROW_SLOTS = 25  # derived: entry, bounds test, one load, one store
JOIN_SLOTS = 2  # derived: a load and an addition
N_IMAGE_CHANNELS, N_PADDED_CHANNELS = 3, 4


def select_scalar_from_rows(
    graph: Graph, params: Tensor, indices: Tensor, sequence: Sequence, name: str = ""
) -> Tensor:
    """out[i] = params[i, indices[i]]; an index out of range gives 0.

    Every tile searches the parts of rows it holds; what it finds goes to one of the row's tiles, to
    another for each row: rows that begin on the same tile do not all come together there.
    """
    _check(params, indices, "select_scalar_from_rows")
    name = name or "selectScalarFromRows"
    if params.n_elems == 0:
        out = graph.add_variable(params.type, [params.shape[0]], name, mapping="linear")
        zero(graph, out, sequence, name)
        return out
    parts = row_parts(graph, params)
    result = one_each(graph, params.type, parts.tile, f"{name}/found")
    fields = {
        "params": Slices(params, parts.begin, parts.end), "out": result,
        "index": Slices(indices, parts.row, parts.row + 1),
        "first": parts.begin - parts.row * params.shape[1],
    }  # fmt: skip
    _add_rows(graph, select_codelet(params.type, indices.type), fields, parts.tile, sequence, name)
    if len(parts.row) == params.shape[0]:
        return result
    begin = np.searchsorted(parts.row, np.arange(params.shape[0] + 1))
    n_parts = np.maximum(np.diff(begin), 1)
    tiles = parts.tile[begin[:-1] + np.arange(len(n_parts)) % n_parts]
    out = one_each(graph, params.type, tiles, name)
    fields = {"selected": Slices(result, begin[:-1], begin[1:]), "out": out}
    _add_rows(graph, join_codelet(params.type), fields, tiles, sequence, f"{name}/join")
    return out


def update_scalar_in_rows(
    graph: Graph, params: Tensor, indices: Tensor, sequence: Sequence, name: str = ""
) -> None:
    """params[i, indices[i]] -= 1; an index out of range changes nothing."""
    _check(params, indices, "update_scalar_in_rows")
    if not is_writeable(params):
        raise PoplibsError(
            f"{params!r} cannot be written: it repeats an element or is constant.",
            source=user_source(),
            hint="update a plain variable",
        )
    fields = {"params": params, "index": indices}
    codelet = update_codelet(params.type, indices.type)
    tiles = _row_tiles(graph, params)
    _add_rows(graph, codelet, fields, tiles, sequence, name or "updateScalarInRows")


def _check(params: Tensor, indices: Tensor, name: str) -> None:
    if params.type not in FLOATS or indices.type not in INDEX_TYPES:
        raise PoplibsError(
            f"{name} does not work on {params.type} with indices of {indices.type}.",
            source=user_source(),
            hint="rows are float or half, indices unsigned int or int",
        )
    if params.rank != 2 or indices.shape != params.shape[:1]:
        raise PoplibsError(
            f"{name} needs a matrix and an index per row, got {list(params.shape)} and "
            f"{list(indices.shape)}.",
            source=user_source(),
            hint="flatten the outer dimensions of both",
        )


def _row_tiles(graph: Graph, params: Tensor) -> np.ndarray:
    """The tile of each row's first element: the row comes together there."""
    if params.n_elems == 0:
        return np.zeros(params.shape[0], np.int64)
    mapping = graph.get_tile_mapping(params[:, 0])
    return np.repeat(mapping.tile, mapping.end - mapping.begin)


def _add_rows(
    graph: Graph, codelet: type, fields: dict[str, Any], tiles: np.ndarray,
    sequence: Sequence, name: str,
) -> None:  # fmt: skip
    if len(tiles):
        run_vertices(graph, codelet, fields, tiles, sequence, name)


@family
def select_codelet(element: Type, index_type: Type) -> type:
    class SelectFromRow(Vertex):
        name = f"popops::SelectFromRow<{element},{index_type}>"
        provenance = "derived"
        params: Input[Vector[element]]
        index: Input[index_type]
        out: Output[element]
        first: uint32

        def compute(self: Any) -> None:
            index = int(self.index) - int(self.first)
            if 0 <= index < len(self.params):
                self.out = self.params[index]
            else:
                self.out = element(0)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return np.full(v.n_rows, ROW_SLOTS)

        flops = no_flops

    return SelectFromRow


@family
def join_codelet(element: Type) -> type:
    class JoinFinds(Vertex):
        """The sum of the selected elements of all parts: at most one is not 0."""

        name = f"popops::JoinFinds<{element}>"
        provenance = "derived"
        selected: Input[Vector[element]]
        out: Output[element]

        def compute(self: Any) -> None:
            total = self.selected[0]
            for i in range(1, len(self.selected)):
                total += self.selected[i]
            self.out = total

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return ROW_SLOTS + JOIN_SLOTS * v.sizes["selected"]

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return (v.sizes["selected"] - 1) * element.is_floating

    return JoinFinds


@family
def update_codelet(element: Type, index_type: Type) -> type:
    class UpdateInRow(Vertex):
        name = f"popops::UpdateInRow<{element},{index_type}>"
        provenance = "derived"
        params: InOut[Vector[element]]
        index: Input[index_type]

        def compute(self: Any) -> None:
            index = self.index
            if 0 <= index < len(self.params):
                self.params[index] = self.params[index] - element(1)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return np.full(v.n_rows, ROW_SLOTS + 2)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return np.full(v.n_rows, int(element.is_floating))

    return UpdateInRow


def normalise_image(
    graph: Graph, image: Tensor, scale: float, offsets: Tensor, scales: Tensor,
    sequence: Sequence, name: str = "",
) -> Tensor:  # fmt: skip
    """(image · scale - offsets) · scales per channel, with a fourth channel of zeros.

    The image has shape […, 3]; bytes become half; offsets and scales have 3 elements of its type.
    """
    is_image = image.rank >= 1 and image.shape[-1] == N_IMAGE_CHANNELS
    if not is_image or offsets.shape != (3,) or scales.shape != (3,):
        raise PoplibsError(
            f"normalise_image needs an image of shape […, 3] and 3 offsets and scales, got "
            f"{list(image.shape)}, {list(offsets.shape)}, {list(scales.shape)}.",
            source=user_source(),
            hint="put the channels last",
        )
    type = image.type if image.type in FLOATS else HALF
    value = Cast(_1, type) if image.type is not type else _1
    expr = (value * scale - _2) * _3
    out = map_expr(graph, expr, [image, offsets, scales], sequence, name or "normaliseImage")
    shape = (*image.shape[:-1], N_PADDED_CHANNELS - N_IMAGE_CHANNELS)
    padding = graph.add_variable(type, shape, "imagePadding")
    _map_padding(graph, out, padding)
    zero(graph, padding, sequence)
    return concat([out, padding], image.rank - 1)


def _map_padding(graph: Graph, out: Tensor, padding: Tensor) -> None:
    """Beside the last channel of the same pixel."""
    last = out[..., -1:]
    graph.set_tile_mapping(padding, graph.get_tile_mapping(last))


# -- registry ----------------------------------------------------------------------------------


def _row_samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    for n_rows, n_cols in ((7, 5), (1, 1), (0, 3)):
        params = random.standard_normal((n_rows, n_cols)).astype(type.dtype)
        yield Sample((params, random.integers(0, n_cols + 2, n_rows).astype(np.uint32)))
    params = random.standard_normal((3, 4)).astype(type.dtype)
    yield Sample((params, np.array([2, -1, 3], np.int32)))


def _select_reference(params: np.ndarray, indices: np.ndarray) -> np.ndarray:
    valid = (indices >= 0) & (indices < params.shape[1])
    picked = params[np.arange(len(params)), np.where(valid, indices, 0)]
    return np.where(valid, picked, 0).astype(params.dtype)


def _update_reference(params: np.ndarray, indices: np.ndarray) -> np.ndarray:
    rows = np.flatnonzero((indices >= 0) & (indices < params.shape[1]))
    params[rows, indices[rows]] -= 1
    return params


_ROW_ERRORS = (
    ErrorCase(Sample((np.ones((2, 3), np.int32), np.zeros(2, np.uint32))), "does not work on int"),
    ErrorCase(Sample((np.ones((2, 3), np.float32), np.zeros(3, np.uint32))), "an index per row"),
)
register(
    Op(
        name="popops.select_scalar_from_rows",
        function=select_scalar_from_rows,
        about="From each row of a matrix the element an index names.",
        types=FLOATS,
        samples=_row_samples,
        reference=_select_reference,
        codelets=(select_codelet, join_codelet),
        errors=_ROW_ERRORS,
    )
)
register(
    Op(
        name="popops.update_scalar_in_rows",
        function=update_scalar_in_rows,
        about="1 taken from the element that an index names in each row, in place.",
        types=FLOATS,
        samples=_row_samples,
        reference=_update_reference,
        codelets=(update_codelet,),
        is_in_place=True,
        errors=_ROW_ERRORS,
    )
)


def _normalised(
    graph: Graph, image: Tensor, offsets: Tensor, scales: Tensor, sequence: Sequence, *,
    scale: float,
) -> Tensor:  # fmt: skip
    return normalise_image(graph, image, scale, offsets, scales, sequence)


def _image_samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    small = np.dtype(np.float16 if type.name == "UNSIGNED_CHAR" else type.dtype)
    for shape in ((4, 5, 3), (1, 3), (2, 2, 2, 3)):
        image = random.integers(0, 255, shape).astype(type.dtype)
        parts = (random.uniform(0.5, 1.5, 3).astype(small) for _ in range(2))
        yield Sample((image, *parts), {"scale": 0.0078125})


def _image_reference(
    image: np.ndarray, offsets: np.ndarray, scales: np.ndarray, scale: float
) -> np.ndarray:
    values = (image.astype(np.float64) * scale - offsets) * scales
    padded = np.concatenate((values, np.zeros((*image.shape[:-1], 1))), axis=-1)
    return padded.astype(offsets.dtype)


register(
    Op(
        name="popops.normalise_image",
        function=_normalised,
        about="An image scaled and shifted per channel, with a fourth channel of zeros.",
        types=(UNSIGNED_CHAR, *FLOATS),
        samples=_image_samples,
        reference=_image_reference,
        codelets=(element_codelet,),
        tolerance={"UNSIGNED_CHAR": 4e-3},
        errors=(
            ErrorCase(
                Sample((np.ones((2, 4), np.float32), np.ones(3, np.float32),
                        np.ones(3, np.float32)), {"scale": 1.0}),
                "an image of shape […, 3]",
            ),
        ),
    )
)  # fmt: skip
