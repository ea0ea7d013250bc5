"""`_serializeIr`: the graph of a session as JSON, operations by ONNX's types."""

import json
from collections.abc import Mapping

import onnx
from onnx import AttributeProto, helper

from tremula.base.storage.strict_json import JsonObject
from tremula.frontends.onnx.table import newest_operator
from tremula.frontends.popart.builder.graph import PARTIAL_GRAPH
from tremula.frontends.popart.builder.inference import InferredType
from tremula.frontends.popart.tensor_info import type_name
from tremula.ir.origin import FORWARD, ORIGIN
from tremula.ir.run.tensor_names import graph_as_json
from tremula.ir.step import BlockPlace, CapturedStep


def serialised(
    graph: onnx.GraphProto,
    types: Mapping[str, InferredType],
    places: Mapping[str, BlockPlace],
    step: CapturedStep | None,
    *,
    is_in_place: bool,
) -> str:
    """{"maingraph": [operation, …]} with type, inputs, outputs and attributes of each.

    Graphs have the names that `setGraphName` gave them; a main graph without one is "maingraph".
    Forward operations are those of the ONNX graph, after its patterns; those that differentiate and
    update, of a step that is compiled, follow with types of the captured graph.
    """
    n_readers: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            n_readers[name] = n_readers.get(name, 0) + 1
    preserved = {v.name for v in graph.output} | {t.name for t in graph.initializer}
    preserved |= {v.name for v in graph.input}
    main = "maingraph" if graph.name in ("", PARTIAL_GRAPH) else graph.name
    result: dict[str, list[JsonObject]] = {main: []}
    for node in graph.node:
        operand = node.input[0] if node.input else ""
        entry = newest_operator(node.domain, node.op_type)
        overwrites = is_in_place and entry is not None and entry.in_place
        overwrites = overwrites and n_readers.get(operand, 0) == 1 and operand not in preserved
        result[main].append(_operation(node, types, places, "Inplace" * overwrites))
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                own = attribute.g.name
                is_named = own and not own.startswith(PARTIAL_GRAPH)
                name = own if is_named else f"{node.name or node.op_type}/{attribute.name}"
                result[name] = [_operation(n, types, {}, "") for n in attribute.g.node]
    if step is not None and step.training:
        result[main] += _other_phases(step)
    return json.dumps(result)


def _operation(
    node: onnx.NodeProto,
    types: Mapping[str, InferredType],
    places: Mapping[str, BlockPlace],
    suffix: str,
) -> JsonObject:
    attributes = {
        attribute.name: _plain(helper.get_attribute_value(attribute))
        for attribute in node.attribute
        if attribute.type not in (AttributeProto.GRAPH, AttributeProto.TENSOR)
    }
    place = places.get(node.output[0]) if node.output else None
    if place is not None:
        attributes["__ipu_number"] = str(place.chip)
    return {
        "type": node.op_type + suffix,
        "name": node.name,
        "domain": node.domain or "ai.onnx",
        "inputs": [_tensor(name, types, i) for i, name in enumerate(node.input) if name],
        "outputs": [_tensor(name, types, i) for i, name in enumerate(node.output) if name],
        "attributes": attributes,
    }


def _tensor(name: str, types: Mapping[str, InferredType], index: int) -> JsonObject:
    result = types.get(name)
    if result is None or result.shape is None or not result.element:
        return {"name": name, "index": index}
    shape = " ".join("?" if n is None else str(n) for n in result.shape)
    kind = type_name(result.element).lower()
    return {"name": name, "index": index, "shape": f"[{shape}]", "type": kind}


def _plain(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _other_phases(step: CapturedStep) -> list[JsonObject]:
    """Operations of the backward pass and the update."""
    later = {
        node.name
        for node in step.graph.nodes
        if node.op == "call_function" and ORIGIN in node.meta and node.meta[ORIGIN].phase != FORWARD
    }
    every = json.loads(graph_as_json(step))["maingraph"]
    return [row for row in every if row["outputs"] and row["outputs"][0]["name"] in later]
