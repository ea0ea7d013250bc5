"""Assignments of layers to stages as objects, which a script gets, changes and sets again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import keras
from keras.layers import Layer

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.pipelines.stages import Path, invocations, stage_of


@dataclass
class SequentialLayerPipelineStageAssignment:
    """A layer of a Sequential model and its stage."""

    layer: Layer
    pipeline_stage: int | None = None


@dataclass
class FunctionalLayerPipelineStageAssignment:
    """A call of a layer of a functional model and its stage."""

    layer: Layer
    node_index: int
    pipeline_stage: int | None = None

    @property
    def inbound_layers(self) -> list[Layer]:
        """The layers whose outputs this call reads."""
        node = self.layer._inbound_nodes[self.node_index]
        return [parent.operation for parent in node.parent_nodes]


@dataclass
class ModelLayerPipelineStageAssignment:
    """A layer of a model whose `call` is Python code, and its stage."""

    layer: Layer
    node_index: int = 0
    pipeline_stage: int | None = None


@dataclass
class _NestedModel:
    nested_model: keras.Model
    node_index: int = 0
    pipeline_stage_assignments: list["Assignment"] = field(default_factory=list)


class SequentialNestedModelPipelineStageAssignment(_NestedModel):
    """A model in a Sequential model, with the assignments of its layers."""


class FunctionalNestedModelPipelineStageAssignment(_NestedModel):
    """A model in a functional model, with the assignments of its layers."""


class NestedModelPipelineStageAssignment(_NestedModel):
    """A model in a model whose `call` is Python code, with the assignments of its layers."""


LayerAssignment = (
    SequentialLayerPipelineStageAssignment
    | FunctionalLayerPipelineStageAssignment
    | ModelLayerPipelineStageAssignment
)
Assignment = LayerAssignment | _NestedModel


def assignments_of(
    model: keras.Model, assigned: dict[Path, int] | None = None, prefix: Path = ()
) -> list[Assignment]:
    """An assignment for every call of a layer, in order."""
    of_layer, of_model = _kinds(model)
    result, numbers = [], {}
    for layer, node in invocations(model):
        number = numbers.get(id(layer), 0)
        numbers[id(layer)] = number + 1
        path = (*prefix, (id(layer), number))
        stage = (assigned or {}).get(path, stage_of(layer, node))
        if isinstance(layer, keras.Model) and stage is None:
            result.append(of_model(layer, node, assignments_of(layer, assigned, path)))
        elif isinstance(model, keras.Sequential):
            result.append(of_layer(layer, pipeline_stage=stage))
        else:
            result.append(of_layer(layer, node_index=node, pipeline_stage=stage))
    return result


def _kinds(
    model: keras.Model,
) -> tuple[Callable[..., LayerAssignment], Callable[..., _NestedModel]]:
    if isinstance(model, keras.Sequential):
        return SequentialLayerPipelineStageAssignment, SequentialNestedModelPipelineStageAssignment
    if hasattr(model, "_nodes_by_depth"):
        return FunctionalLayerPipelineStageAssignment, FunctionalNestedModelPipelineStageAssignment
    return ModelLayerPipelineStageAssignment, NestedModelPipelineStageAssignment


def assigned_stages(
    model: keras.Model, assignments: Sequence[Assignment | int], prefix: Path = ()
) -> dict[Path, int]:
    """Stages by call, as assignments say; an error if one is missing or of another model."""
    kinds, expected = _kinds(model), invocations(model)
    values = _of_numbers(model, assignments)
    for each in values:
        if type(each) not in kinds:
            raise keras_error(
                f"an assignment of {model.name!r} is a {type(each).__name__}; expected"
                f" {kinds[0].__name__} or {kinds[1].__name__}.",
                hint="change what model.get_pipeline_stage_assignment() gives",
            )
    result: dict[Path, int] = {}
    numbers: dict[int, int] = {}
    for layer, node in expected:
        number = numbers.get(id(layer), 0)
        numbers[id(layer)] = number + 1
        each = _matching(model, values, layer, node)
        path = (*prefix, (id(layer), number))
        if isinstance(each, _NestedModel):
            result.update(assigned_stages(layer, each.pipeline_stage_assignments, path))
            continue
        if not isinstance(each.pipeline_stage, int) or each.pipeline_stage < 0:
            raise keras_error(
                f"layer {layer.name!r} of {model.name!r} is assigned to the pipeline stage"
                f" {each.pipeline_stage!r}; a stage is a whole number from 0 on."
            )
        result[path] = each.pipeline_stage
    if len(values) != len(expected):
        raise keras_error(
            f"{len(values)} assignments for {len(expected)} calls of layers of {model.name!r}.",
            hint="change what model.get_pipeline_stage_assignment() gives",
        )
    return result


def _of_numbers(model: keras.Model, assignments: Sequence[Assignment | int]) -> list[Assignment]:
    """Assignments, also of a Sequential model whose stages are a list of numbers."""
    values = list(assignments)
    are_numbers = bool(values) and all(type(each) is int for each in values)
    if not (are_numbers and isinstance(model, keras.Sequential)):
        return values  # pyright: ignore[reportReturnType] - others are rejected by their type
    layers = [layer for layer, _ in invocations(model)]
    if len(layers) != len(values):
        raise keras_error(
            f"{len(values)} pipeline stages for {len(layers)} layers of {model.name!r}.",
            hint="give a stage for every layer; an Input has none",
        )
    numbered: list[Assignment] = []
    for layer, stage in zip(layers, values, strict=True):
        assert isinstance(stage, int), "checked above"
        numbered.append(SequentialLayerPipelineStageAssignment(layer, stage))
    return numbered


def _matching(
    model: keras.Model, assignments: list[Assignment], layer: Layer, node: int
) -> Assignment:
    for each in assignments:
        own = each.nested_model if isinstance(each, _NestedModel) else each.layer
        if own is layer and getattr(each, "node_index", node) == node:
            return each
    raise keras_error(
        f"layer {layer.name!r} of {model.name!r} is not assigned to a pipeline stage.",
        hint="change what model.get_pipeline_stage_assignment() gives: it has every layer",
    )


def summary(model: keras.Model, assigned: dict[Path, int] | None) -> str:
    """A readable table of layers and stages."""
    rows = [("layer", "type", "call", "stage"), *_rows(assignments_of(model, assigned))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([f"Pipeline stages of {model.name!r}", *(line.rstrip() for line in lines)])


def _rows(assignments: Sequence[Assignment], prefix: str = "") -> list[tuple[str, str, str, str]]:
    result = []
    for each in assignments:
        if isinstance(each, _NestedModel):
            result += _rows(each.pipeline_stage_assignments, f"{prefix}{each.nested_model.name}/")
            continue
        stage = "none" if each.pipeline_stage is None else str(each.pipeline_stage)
        layer, node = each.layer, getattr(each, "node_index", 0)
        result.append((f"{prefix}{layer.name}", type(layer).__name__, str(node), stage))
    return result
