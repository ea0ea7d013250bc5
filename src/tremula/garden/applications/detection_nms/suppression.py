"""Of boxes that overlap only the best stays: a custom operation with a vertex for each image."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false

from typing import Any

import torch
from torch import Tensor

import poptorch
from tremula.base.types import FLOAT, INT, float32, int32
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.ops.custom import custom_operation
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute
from tremula.poplar.tensors.tensor import Tensor as TileTensor

NAME, DOMAIN = "SuppressOverlaps", "tremula.garden"


def suppress_overlaps(
    boxes: Tensor, scores: Tensor, *, overlap: float, least: float, most: int
) -> Tensor:
    """Places `int32[n, most]` of the boxes to keep, the best first; -1 where there are no more.

    Boxes [n, m, 4] are (left, top, right, bottom), scores [n, m]. A box goes if its intersection
    with a better one is more than `overlap` of their union, or its score at most `least`.
    """
    like = torch.zeros((boxes.shape[0], most), dtype=torch.int32)
    attributes = {"overlap": overlap, "least": least, "most": most}
    (selected,) = poptorch.custom_op(
        [boxes, scores], NAME, DOMAIN, 1, example_outputs=[like], attributes=attributes
    )
    return selected


def suppressed(boxes: Tensor, scores: Tensor, overlap: float, least: float, most: int) -> Tensor:
    """Suppression with PyTorch's operations, all images at once."""
    left, selected = scores.clone(), []
    area = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(2)
    for _ in range(most):
        score, best = left.max(1)
        is_box = score > least
        selected.append(torch.where(is_box, best, -1))
        at = best[:, None, None].expand(-1, 1, 4)
        chosen = boxes.gather(1, at)
        low = torch.maximum(boxes[..., :2], chosen[..., :2])
        high = torch.minimum(boxes[..., 2:], chosen[..., 2:])
        shared = (high - low).clamp(min=0).prod(2)
        union = area + area.gather(1, best[:, None]) - shared
        goes = (shared > overlap * union).scatter(1, best[:, None], True)
        left = torch.where(goes & is_box[:, None], least, left)
    return torch.stack(selected, 1).int()


class Suppress(Vertex):
    """One image: the best box is kept and those that overlap it go, until there are no more."""

    name = "garden::SuppressOverlaps"
    boxes: Input[Vector[float32]]
    scores: Input[Vector[float32]]
    left: Output[Vector[float32]]  # scores of boxes that are neither kept nor gone
    kept: Output[Vector[int32]]
    overlap: float32
    least: float32

    def compute(self: Any) -> None:
        n = len(self.scores)
        for i in range(n):
            self.left[i] = self.scores[i]
        for k in range(len(self.kept)):
            best, score = -1, self.least
            for i in range(n):
                if self.left[i] > score:
                    best, score = i, self.left[i]
            self.kept[k] = best
            if best >= 0:
                self.left[best] = self.least
                x0, y0 = self.boxes[4 * best], self.boxes[4 * best + 1]
                x1, y1 = self.boxes[4 * best + 2], self.boxes[4 * best + 3]
                area = max(x1 - x0, float32(0)) * max(y1 - y0, float32(0))
                for i in range(n):
                    u0, v0 = self.boxes[4 * i], self.boxes[4 * i + 1]
                    u1, v1 = self.boxes[4 * i + 2], self.boxes[4 * i + 3]
                    wide = max(min(x1, u1) - max(x0, u0), float32(0))
                    high = max(min(y1, v1) - max(y0, v0), float32(0))
                    shared = wide * high
                    other = max(u1 - u0, float32(0)) * max(v1 - v0, float32(0))
                    if shared > self.overlap * (area + other - shared):
                        self.left[i] = self.least


def _on_tiles(
    tiles: Tiles, inputs: list[TileTensor], attributes: dict[str, Any]
) -> list[TileTensor]:
    selected, execute = suppression(tiles.graph, *inputs, name=tiles.name, **attributes)
    tiles.sequence.add(execute)
    return [selected]


def suppression(
    graph: Graph, boxes: TileTensor, scores: TileTensor, *,
    overlap: float, least: float, most: int, name: str = NAME,
) -> tuple[TileTensor, Execute]:  # fmt: skip
    """A vertex for each image, spread over the tiles: where results will be, and the step."""
    n_images = boxes.shape[0]
    selected = graph.add_variable(INT, [n_images, most], name)
    left = graph.add_variable(FLOAT, list(scores.shape), f"{name}/left")
    compute_set = graph.add_compute_set(name)
    numbers = {"overlap": overlap, "least": least}
    for image in range(n_images):
        tile = image * graph.target.tiles_per_ipu // n_images
        for own in (selected[image], left[image]):
            graph.set_tile_mapping(own, tile)
        fields = {"boxes": boxes[image].flatten(), "scores": scores[image], "left": left[image]}
        graph.add_vertex(
            compute_set, Suppress, {**fields, "kept": selected[image], **numbers}, tile=tile
        )
    return selected, Execute(compute_set)


custom_operation(
    NAME,
    DOMAIN,
    1,
    host=lambda inputs, attributes: [suppressed(inputs[0], inputs[1], **attributes)],  # pyright: ignore[reportArgumentType]
    tiles=_on_tiles,  # pyright: ignore[reportArgumentType]
)
