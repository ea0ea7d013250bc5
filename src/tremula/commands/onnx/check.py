"""`tremula onnx-check model.onnx`: what of a model runs, and what has no lowering to tiles."""

import argparse
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tremula.commands.onnx.inputs import add_model_arguments, load_inputs
from tremula.commands.progress import progress
from tremula.vision.analysis.text_views import table

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    from torch import fx

    from tremula.frontends.onnx.graph import OnnxNode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from tremula.frontends.onnx import UnsupportedOnnx
    from tremula.frontends.onnx.compiled import capture_model

    imported, inputs, lines = load_inputs(args)
    print("\n".join(f"input  {line}" for line in lines))
    print(_operators(imported.module.graph.nodes))
    try:
        with progress("capturing"):
            step = capture_model(imported, inputs)
    except UnsupportedOnnx as error:
        print(f"not static: {error}")
        return 1
    rows = _without_lowering(step.graph.nodes)
    if not rows:
        print("Everything has a lowering to tiles.")
        return 0
    print(table(["no lowering to tiles", "in node"], rows))
    return 1


def _operators(nodes: "tuple[OnnxNode, ...]") -> str:
    counts = Counter(
        (node.domain or "ai.onnx", node.op_type, node.version, _way(node)) for node in nodes
    )
    rows = [(domain, name, version, n, way) for (domain, name, version, way), n in counts.items()]
    return table(["domain", "operator", "version", "nodes", "computed by"], sorted(rows))


def _way(node: "OnnxNode") -> str:
    if node.operator is not None:
        return f"operators/{node.operator.family.replace('.', '/')}.py"
    return "a function of the model" if node.function else "its definition"


def _without_lowering(nodes: "Iterable[fx.Node]") -> list[tuple[str, str]]:
    """(operation, name of the ONNX node), each once."""
    from tremula.ir.nodes import overload_name
    from tremula.ir.op_table import lowering_of
    from tremula.ir.origin import ORIGIN

    result: dict[tuple[str, str], None] = {}
    for node in nodes:
        if node.op == "call_function" and lowering_of(node) is None:
            origin = node.meta.get(ORIGIN)
            where = "/".join(origin.scope) if origin else ""
            result[overload_name(node.target), where] = None
    return list(result)
