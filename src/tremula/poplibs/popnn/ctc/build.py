"""How a CTC loss is built: parts of time on tiles, and sweeps through them in both directions."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, UNSIGNED_INT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.popnn.ctc.codelets import (
    LOG_ZERO,
    ctc_alpha_codelet,
    ctc_beta_codelet,
    ctc_gradient_codelet,
    ctc_loss_codelet,
)
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import PoplibsError

# The least steps of a part of time, so that handing over is a small share of its work.
MIN_PART_STEPS = 16


@dataclass(frozen=True, slots=True)
class CtcPlan:
    """How the steps of all sequences are spread: sequence b's part p is on tile b·n_parts + p."""

    n_steps: int
    n_batches: int
    n_parts: int
    n_tiles: int

    def cut(self, part: np.ndarray | int) -> np.ndarray:
        """The first step of a part."""
        return np.asarray(part, np.int64) * self.n_steps // self.n_parts

    def tiles(self, batch: np.ndarray, part: np.ndarray | int) -> np.ndarray:
        return (batch * self.n_parts + part) % self.n_tiles

    def every(self) -> tuple[np.ndarray, np.ndarray]:
        """(batch, part) of all parts."""
        return np.divmod(np.arange(self.n_batches * self.n_parts), self.n_parts)


def plan(graph: Graph, n_steps: int, n_batches: int) -> CtcPlan:
    """As many parts of time as there are tiles for, if each has enough to do."""
    n_tiles = graph.target.n_tiles
    n_parts = min(n_tiles // max(n_batches, 1), n_steps // MIN_PART_STEPS)
    return CtcPlan(n_steps, n_batches, max(n_parts, 1), n_tiles)


def add_by_part(graph: Graph, type: Type, layout: CtcPlan, n_values: int, name: str) -> Tensor:
    """A new tensor [n_batches, n_steps, n_values], each part of time on its tile."""
    shape = [layout.n_batches, layout.n_steps, n_values]
    variable = graph.add_variable(type, shape, name)
    batch, part = layout.every()
    begin = (batch * layout.n_steps + layout.cut(part)) * n_values
    end = (batch * layout.n_steps + layout.cut(part + 1)) * n_values
    tiles = layout.tiles(batch, part)
    graph.set_tile_mapping(variable, TileMapping(begin, end, tiles, layout.n_tiles))
    return variable


class CtcCall(NamedTuple):
    """The operands of one loss, checked."""

    graph: Graph
    data: Tensor  # log probabilities, [n_batches, n_steps, n_classes]
    labels: Tensor
    data_lengths: Tensor
    label_lengths: Tensor
    blank: int
    layout: CtcPlan
    sequence: Sequence
    name: str

    @property
    def n_places(self) -> int:
        return 2 * self.labels.shape[1] + 1

    def slices(self, tensor: Tensor, batch: np.ndarray, part: np.ndarray | int) -> Slices:
        """Parts of time of a tensor [n_batches, n_steps, …]."""
        n_steps, n_values = self.layout.n_steps, tensor.shape[2]
        first = batch * n_steps
        begin, end = first + self.layout.cut(part), first + self.layout.cut(np.asarray(part) + 1)
        return Slices(tensor, begin * n_values, end * n_values)

    def fields(self, batch: np.ndarray, part: np.ndarray | int) -> dict[str, object]:
        """The fields that all vertices of a part of time share."""
        n_labels = self.labels.shape[1]
        return {
            "probabilities": self.slices(self.data, batch, part),
            "labels": Slices(self.labels, batch * n_labels, (batch + 1) * n_labels),
            "data_length": Slices(self.data_lengths, batch, batch + 1),
            "label_length": Slices(self.label_lengths, batch, batch + 1),
            "first_step": self.layout.cut(part),
            "n_classes": self.data.shape[2],
            "blank": self.blank,
        }


def check_ctc_type(type: Type) -> None:
    if type not in (FLOAT, HALF):
        raise PoplibsError(
            f"CTC works on float and half, got {type}.",
            source=user_source(),
            hint="cast the data, or give out_type=FLOAT",
        )


def check_data(data: Tensor, labels: Tensor, blank: int) -> None:
    check_ctc_type(data.type)
    if data.rank != 3 or not data.shape[0] or labels.rank != 2 or labels.shape[0] != data.shape[1]:
        raise PoplibsError(
            "CTC expected data of shape [n_steps, n_batches, n_classes] and labels of shape "
            f"[n_batches, n_labels], got {list(data.shape)} and {list(labels.shape)}.",
            source=user_source(),
            hint="both must have the same number of sequences, of one step or more",
        )
    if not 0 <= blank < data.shape[2]:
        raise PoplibsError(
            f"the blank class is {blank}, but there are {data.shape[2]} classes.",
            source=user_source(),
            hint="count classes from 0",
        )


def check_lengths(lengths: Tensor, n_batches: int, what: str) -> None:
    if lengths.shape != (n_batches,) or lengths.type is not UNSIGNED_INT:
        raise PoplibsError(
            f"{what} must be unsigned int [{n_batches}], got {lengths.type} {list(lengths.shape)}.",
            source=user_source(),
            hint="give one length for each sequence",
        )


def checked_call(
    graph: Graph, tensors: tuple[Tensor, Tensor, Tensor, Tensor], blank: int, sequence: Sequence,
    name: str,
) -> CtcCall:  # fmt: skip
    data, labels, data_lengths, label_lengths = tensors
    check_data(data, labels, blank)
    n_steps, n_batches, _ = data.shape
    check_lengths(data_lengths, n_batches, "data_lengths")
    check_lengths(label_lengths, n_batches, "label_lengths")
    if labels.type is not UNSIGNED_INT:
        raise PoplibsError(
            f"labels must be unsigned int, got {labels.type}.",
            source=user_source(),
            hint="popops.cast(graph, labels, UNSIGNED_INT, sequence)",
        )
    layout = plan(graph, n_steps, n_batches)
    by_batch = data.dim_shuffle([1, 0, 2])
    return CtcCall(
        graph, by_batch, labels, data_lengths, label_lengths, blank, layout, sequence, name
    )


def add_sweeps(call: CtcCall, *, has_beta: bool) -> tuple[Tensor, Tensor]:
    """Alpha forwards and beta backwards through the parts of time, both in each compute set."""
    graph, layout, n = call.graph, call.layout, call.n_places
    alpha = add_by_part(graph, FLOAT, layout, n, f"{call.name}/alpha")
    beta = add_by_part(graph, FLOAT, layout, n, f"{call.name}/beta") if has_beta else alpha
    if not layout.n_batches:
        return alpha, beta
    first = graph.add_constant(FLOAT, [n], np.where(np.arange(n), LOG_ZERO, 0.0), "start")
    batch = np.arange(layout.n_batches)
    start = Slices(first, np.zeros_like(batch), np.full_like(batch, n))

    def row(tensor: Tensor, step: int) -> Slices:
        begin = (batch * layout.n_steps + step) * n
        return Slices(tensor, begin, begin + n)

    for part in range(layout.n_parts):
        compute_set = graph.add_compute_set(f"{call.name}/step")
        before = row(alpha, int(layout.cut(part)) - 1) if part else start
        fields = call.fields(batch, part) | {"before": before}
        fields["alpha"] = call.slices(alpha, batch, part)
        tiles = layout.tiles(batch, part)
        graph.add_vertices(compute_set, ctc_alpha_codelet(call.data.type), fields, tiles=tiles)
        if has_beta:
            back = layout.n_parts - 1 - part
            after = row(beta, int(layout.cut(back + 1))) if part else start
            fields = call.fields(batch, back) | {"after": after}
            fields["beta"] = call.slices(beta, batch, back)
            tiles = layout.tiles(batch, back)
            graph.add_vertices(compute_set, ctc_beta_codelet(call.data.type), fields, tiles=tiles)
        call.sequence.add(Execute(compute_set))
    return alpha, beta


def add_loss(call: CtcCall, alpha: Tensor) -> Tensor:
    """The loss [n_batches] of each sequence, in float, where its last part of time is."""
    graph, layout, n = call.graph, call.layout, call.n_places
    loss = graph.add_variable(FLOAT, [layout.n_batches], f"{call.name}/loss")
    batch = np.arange(layout.n_batches)
    tiles = layout.tiles(batch, layout.n_parts - 1)
    graph.set_tile_mapping(loss, TileMapping(batch, batch + 1, tiles, layout.n_tiles))
    if loss.n_elems:
        end = (batch + 1) * layout.n_steps * n
        fields = {
            "alpha": Slices(alpha, end - n, end),
            "label_length": call.label_lengths,
            "loss": loss,
        }
        run_vertices(graph, ctc_loss_codelet(), fields, tiles, call.sequence, f"{call.name}/loss")
    return loss


def add_gradient(call: CtcCall, alpha: Tensor, beta: Tensor, loss: Tensor, type: Type) -> Tensor:
    """The gradient [n_batches, n_steps, n_classes], all parts of time at once."""
    graph, layout = call.graph, call.layout
    name = f"{call.name}/gradient"
    gradient = add_by_part(graph, type, layout, call.data.shape[2], name)
    if gradient.n_elems:
        batch, part = layout.every()
        fields = call.fields(batch, part) | {
            "alpha": call.slices(alpha, batch, part),
            "beta": call.slices(beta, batch, part),
            "gradient": call.slices(gradient, batch, part),
            "loss": Slices(loss, batch, batch + 1),
        }
        codelet = ctc_gradient_codelet(call.data.type, type)
        run_vertices(graph, codelet, fields, layout.tiles(batch, part), call.sequence, name)
    return gradient
