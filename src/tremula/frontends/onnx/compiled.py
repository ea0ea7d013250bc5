"""A model compiled for the shapes of given inputs: on this computer, or on tiles."""

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tremula.frontends.onnx.element_types import element_type, widened
from tremula.frontends.onnx.errors import UnsupportedOnnx
from tremula.frontends.onnx.functions import fixed_body
from tremula.frontends.onnx.graph import NamedValues, OnnxGraph, OnnxNode
from tremula.frontends.onnx.imported import ImportedModel, OnnxModule
from tremula.frontends.shared.program import StepProgram, compile_program
from tremula.ir.capture.capture import capture, model_tensors
from tremula.ir.passes import COMMON_PASSES, TILE_PASSES, apply
from tremula.ir.run.compiled_step import StepSettings, StepToCompile
from tremula.ir.run.generators import new_seed
from tremula.ir.run.tile_program import TileSettings
from tremula.ir.settings import HostSettings, host_settings
from tremula.ir.step import BUFFER, PARAMETER, CapturedStep

NAME = "onnx"  # of a model in reports
_SHAPES_ONLY = {"Shape", "Size", "SequenceLength", "OptionalHasElement"}


def static_inputs(graph: OnnxGraph) -> list[str]:
    """Inputs whose values must be known: shapes, axes, trip counts and what they are made of."""
    wanted = _static_names(graph.nodes)
    names = [value.name for value in graph.inputs if value.name not in graph.initialisers]
    return [name for name in names if name in wanted]


def _static_names(nodes: Sequence[OnnxNode]) -> set[str]:
    wanted: set[str] = set()
    for node in reversed(nodes):
        places = _static_places(node)
        wanted |= {node.inputs[place] for place in places if place < len(node.inputs)}
        for graph in node.graphs:
            wanted |= _static_names(graph.nodes) & graph.reads
        if node.op_type not in _SHAPES_ONLY and not wanted.isdisjoint(node.outputs):
            wanted |= node.reads
    return wanted


def _static_places(node: OnnxNode) -> list[int]:
    """Which operands of a node must be known."""
    entry = node.operator
    if entry is not None:
        return [entry.operands.index(name) for name in (*entry.static, *entry.decides)]
    function = node.function or fixed_body(node)
    if function is None:
        return []
    names = _static_names(function.nodes)
    return [index for index, name in enumerate(function.inputs) if name in names]


class _Fixed(nn.Module):
    """The model as a function of the inputs whose values are not fixed."""

    def __init__(self, model: OnnxModule, fixed: NamedValues):
        super().__init__()
        self.model = model
        self.fixed = dict(fixed)
        self.names = [name for name in model.input_names if name not in fixed]

    def forward(self, *inputs: Tensor) -> tuple[Any, ...]:
        values = {**self.fixed, **dict(zip(self.names, inputs, strict=True))}
        return self.model(*(values[name] for name in self.model.input_names))


@dataclass(frozen=True)
class CompiledOnnx:
    """Call it with the inputs that are not fixed, in order."""

    imported: ImportedModel
    program: StepProgram
    input_names: list[str]

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        (outputs,) = self.program.call([inputs])
        kinds = [value.type for value in self.imported.outputs]
        return [
            (tensor.to(element_type(kind).tensor_type) if kind else tensor).cpu()
            for tensor, kind in zip(outputs, kinds, strict=True)
        ]

    def save_report(self, folder: str | os.PathLike[str], *inputs: Tensor) -> Path:
        """Write the report of the tile program for the analyser; the path of its file.

        Where cycles depend on data, those of a call with these inputs, or with zeros.
        """
        return self.program.save_report(folder, NAME, [inputs] if inputs else None)


def compile_model(
    imported: ImportedModel,
    inputs: NamedValues,
    *,
    on_tiles: bool = False,
    chip: str = "bow",
    n_tiles: int = 0,
    host: HostSettings | None = None,
    engine_options: Mapping[str, object] | None = None,
    seed: int | None = None,
) -> CompiledOnnx:
    """Compile a model; inputs that shapes depend on are fixed to the values given.

    `seed` is that of its random operators; by default it is made from the seeds that its nodes
    state, and a fresh one if no node states any.
    """
    request = _request(imported, inputs)
    settings = StepSettings(
        host=host or host_settings(),
        tiles=TileSettings(chip=chip, n_tiles=n_tiles, engine_options=engine_options or {}),
        runs_on_tiles=on_tiles,
        seed=_seed_of_nodes(imported.module.graph) if seed is None else seed,
    )
    program = compile_program(request, settings, report_name=NAME)
    parameters, buffers = (
        [one.tensor.detach() for one in model_tensors(request.model, kind)]
        for kind in (PARAMETER, BUFFER)
    )
    program.write_weights(parameters, buffers)
    return CompiledOnnx(imported, program, request.input_names)


def _seed_of_nodes(graph: OnnxGraph) -> int:
    """One seed from those of all nodes: the device has one generator, not one for each node."""
    seeds = _stated_seeds(graph.nodes)
    return zlib.crc32(repr(seeds).encode()) if seeds else new_seed()


def _stated_seeds(nodes: Sequence[OnnxNode]) -> list[float]:
    seeds: list[float] = []
    for node in nodes:
        if node.attributes.get("seed") is not None:
            seeds.append(float(node.attributes["seed"]))
        for graph in node.graphs:
            seeds += _stated_seeds(graph.nodes)
    return seeds


def capture_model(imported: ImportedModel, inputs: NamedValues) -> CapturedStep:
    """The operations that a tile program would be made of; nothing is compiled."""
    request = _request(imported, inputs)
    step = capture(
        request.model, request.run_forward, request.inputs, input_names=request.input_names
    )
    return apply(apply(step, COMMON_PASSES), TILE_PASSES, "tiles")


def _request(imported: ImportedModel, inputs: NamedValues) -> StepToCompile:
    static = static_inputs(imported.module.graph)
    model = _Fixed(imported.module, {name: inputs[name] for name in static}).eval()
    live = [widened(inputs[name]) for name in model.names]
    _reject_others(model.names, live)

    def run_forward(flat: list[Tensor]) -> tuple[list[Tensor], None]:
        outputs = model(*flat)
        _reject_others([value.name for value in imported.outputs], outputs)
        return list(outputs), None

    return StepToCompile(model, run_forward, live, model.names)


def _reject_others(names: Sequence[str], values: Sequence[Any]) -> None:
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, Tensor):
            kind = "a sequence" if isinstance(value, list) else "no tensor"
            raise UnsupportedOnnx(
                f"{name!r} is {kind}: compiled programs take and give tensors only.",
                hint="run the model uncompiled: imported.module(…)",
            )
