"""A captured step as text, to read and to diff: one line for each input, node and result.

A node's line says its name, type and shape, the call, and where it comes from: phase, module, line,
block. Names are the graph's, which passes keep, so the texts before and after a pass differ only in
what the pass did. Constants show a digest of their values; bodies of loops follow their step.

    step: training
    inputs: 3
      %parameter_0  float32[2, 3]  parameter 0 'layer.weight'
    nodes: 2
      %t  float32[3, 2]  aten::t(%parameter_0)  # forward layer model.py:12
    outputs: 1
      %mm  output 0 'output_0'
"""

import hashlib
from collections.abc import Iterator

from torch import Tensor, fx

from tremula.ir.bodies import bodies_in
from tremula.ir.nodes import overload_name
from tremula.ir.origin import ORIGIN, Origin
from tremula.ir.step import CapturedStep, bytes_of


def step_text(step: CapturedStep) -> str:
    """All of a step. Equal models have equal texts."""
    return "\n".join([*_lines(step), *_bodies(step)]) + "\n"


def _lines(step: CapturedStep) -> Iterator[str]:
    yield f"step: {'training' if step.training else 'inference'}"
    yield f"inputs: {len(step.inputs)}"
    for slot, node in zip(step.inputs, step.placeholders(), strict=True):
        yield f"  {_typed(node)}  {slot.kind} {slot.index} {slot.name!r}"
    if step.constants:
        yield f"constants: {len(step.constants)}"
        for name, value in sorted(step.constants.items()):
            yield f"  {name}  {_type(value)}  {hashlib.sha256(bytes_of(value)).hexdigest()[:12]}"
    if step.blocks:
        yield f"blocks: {len(step.blocks)}"
        for index, block in enumerate(step.blocks):
            yield f"  {index} {block.user_id!r}" + (
                f" on ipu {block.ipu_id}" if block.ipu_id is not None else ""
            )
    nodes = [node for node in step.graph.nodes if node.op in ("call_function", "get_attr")]
    yield f"nodes: {len(nodes)}"
    for node in nodes:
        yield f"  {_typed(node)}  {_call(node)}{_origin(node.meta.get(ORIGIN))}"
    yield f"outputs: {len(step.outputs)}"
    for slot, node in zip(step.outputs, step.results(), strict=False):  # Inductor has more results
        yield f"  {_written(node)}  {slot.kind} {slot.index} {slot.name!r}"


def _bodies(step: CapturedStep) -> Iterator[str]:
    """Each body that a loop or branch runs, indented below the name of its node."""
    for node in step.graph.nodes:
        for number, body in enumerate(bodies_in(node)):
            yield f"body {number} of %{node.name}"
            yield from (f"  {line}" for line in (*_lines(body), *_bodies(body)))


def _typed(node: fx.Node) -> str:
    value = node.meta.get("val")
    return f"%{node.name}" + (f"  {_type(value)}" if value is not None else "")


def _type(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(_type(item) for item in value)})"
    if not isinstance(value, Tensor):
        return str(value)
    return f"{str(value.dtype).removeprefix('torch.')}{[int(n) for n in value.shape]}"


def _call(node: fx.Node) -> str:
    if node.op == "get_attr":
        return f"constant {node.target}"
    arguments = [_written(argument) for argument in node.args]
    arguments += [f"{name}={_written(value)}" for name, value in node.kwargs.items()]
    return f"{overload_name(node.target)}({', '.join(arguments)})"


def _written(argument: object) -> str:
    if isinstance(argument, fx.Node):
        return f"%{argument.name}"
    if isinstance(argument, list | tuple):
        return f"[{', '.join(_written(item) for item in argument)}]"
    return repr(argument)


def _origin(origin: Origin | None) -> str:
    if origin is None:
        return ""
    parts = [origin.phase, origin.path, str(origin.source) if origin.source is not None else ""]
    if origin.block is not None:
        parts.append(f"block {origin.block}")
    return "  # " + " ".join(part for part in parts if part)
