"""Op-sets: objects that have every operator of a domain and version as a method."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, TypeProto, helper

from tremula.frontends.onnx.table import GRAPHCORE_DOMAIN, ML_DOMAIN
from tremula.frontends.popart.builder.graph import GraphInProgress
from tremula.frontends.popart.builder.graphcore_ops import graphcore_operators, stored_value
from tremula.frontends.popart.builder.inference import InferredType, type_of
from tremula.frontends.popart.builder.signatures import (
    COUNT,
    ONNX_DOMAIN,
    MethodAttribute,
    OperatorMethod,
    check_inputs,
    make_attribute,
    operators,
    unknown_operator,
)
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.groups import CommGroup
from tremula.frontends.popart.tensor_info import DebugContext, text_of

Results = str | list[str]
Emit = Callable[..., list[str]]  # (operator, inputs, attributes, n_outputs, debug name) -> ids


class OpSet:
    """The operators of a domain in one version: `opset.add([a, b])` appends a node, returns its id.

    `dir(opset)` lists the methods; each has a signature and a docstring.
    """

    domain = ONNX_DOMAIN

    def __init__(self, graph: GraphInProgress, emit: Emit, version: int):
        self._graph = graph
        self._emit = emit
        self.version = version

    def _operators(self) -> dict[str, OperatorMethod]:
        return operators(self.domain, self.version)

    def __getattr__(self, name: str) -> Callable[..., Results]:
        if name.startswith("_"):
            raise AttributeError(name)
        operator = self._operators().get(name)
        if operator is None:
            raise unknown_operator(name, self._operators(), str(self))
        return self._method(operator)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._operators()})

    def __repr__(self) -> str:
        return f"{self.domain or 'ai.onnx'} opset {self.version}"

    def _method(self, operator: OperatorMethod) -> Callable[..., Results]:
        signature = operator.signature()

        def method(*args, **kwargs) -> Results:
            return self._call(operator, signature, args, kwargs)

        method.__name__ = operator.method
        method.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
        method.__doc__ = _described(operator)
        return method

    def _call(
        self,
        operator: OperatorMethod,
        signature: inspect.Signature,
        args: tuple,
        kwargs: dict[str, Any],
    ) -> Results:
        renamed = {"debugPrefix": "debugContext", "lambda": "lambda_"}
        kwargs = {renamed.get(key, key): value for key, value in kwargs.items()}
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{operator.method}{signature}: {error}") from None
        bound.apply_defaults()
        arguments = bound.arguments
        inputs = _as_list(arguments.pop("args", []))
        check_inputs(operator, inputs)
        least, most = operator.n_outputs
        n_outputs = int(arguments.pop(COUNT, most))
        if not least <= n_outputs <= most:
            raise popart_exception(
                f"{operator.type} makes {least} to {most} tensors, num_outputs is {n_outputs}"
            )
        name = text_of(arguments.pop("debugContext"))
        made = (self._stored(a, arguments[a.parameter]) for a in operator.attributes)
        attributes = [attribute for attribute in made if attribute is not None]
        if operator.counts_outputs and len(inputs) == 1:
            attributes.append(helper.make_attribute(COUNT, n_outputs))
        ids = self._emit(operator, inputs, attributes, n_outputs, name)
        return ids[0] if most == 1 else ids

    def _stored(self, attribute: MethodAttribute, value: object) -> AttributeProto | None:
        return make_attribute(attribute, value)


class AiOnnx(OpSet):
    """ONNX's own operators."""

    def constant(
        self,
        value: object,
        is_value_sparse: bool | str | DebugContext = False,
        debugContext: str | DebugContext = "",
    ) -> str:
        """A constant with the value of an array; the name may come second."""
        if not isinstance(is_value_sparse, bool):
            is_value_sparse, debugContext = False, is_value_sparse
        if is_value_sparse:
            raise popart_exception("Constants of sparse tensors are not supported")
        operator = self._operators()["constant"]
        attribute = make_attribute(operator.attributes[0], value)
        return self._emit(operator, [], [attribute], 1, text_of(debugContext))[0]

    def logical_if(
        self,
        args: Sequence[str],
        num_outputs: int,
        else_branch: object,
        then_branch: object,
        debugContext: str | DebugContext = "",
    ) -> list[str]:
        """One of two graphs, as a boolean scalar says; both give `num_outputs` tensors."""
        graphs = {"then_branch": then_branch, "else_branch": else_branch}
        for name, branch in graphs.items():
            n_made = len(_graph_of(branch).proto.output)
            if n_made != num_outputs:
                raise popart_exception(
                    f"{name} of If makes {n_made} outputs, num_outputs is {num_outputs}"
                )
        ids = self._with_graphs("If", args, num_outputs, graphs, {}, debugContext)
        self._note(ids, _output_types(then_branch))
        return ids

    def loop(
        self,
        args: Sequence[str],
        num_outputs: int,
        body: object,
        debugContext: str | DebugContext = "",
    ) -> list[str]:
        """A graph again and again: `args` are the trip count, a condition and what it carries.

        The body takes the iteration, the condition and what is carried; it gives a condition, what
        is carried and what is to be stacked.
        """
        self._bind_types(body, args)
        ids = self._with_graphs("Loop", args, num_outputs, {"body": body}, {}, debugContext)
        types = _output_types(body)[1:]
        n_carried = len(args) - 2
        known = self._graph.find_constant(args[0]) if args[0] else None
        n_trips = (
            int(onnx.numpy_helper.to_array(known).reshape(-1)[0]) if known is not None else None
        )
        stacked = [
            t.with_shape((n_trips, *t.shape)) if t.shape is not None else t
            for t in types[n_carried:]
        ]
        self._note(ids, [*types[:n_carried], *stacked])
        return ids

    def scan(
        self,
        args: Sequence[str],
        num_outputs: int,
        body: object,
        num_scan_inputs: int,
        scan_input_axes: Sequence[int] = (),
        scan_input_directions: Sequence[int] = (),
        scan_output_axes: Sequence[int] = (),
        scan_output_directions: Sequence[int] = (),
        debugContext: str | DebugContext = "",
    ) -> list[str]:
        """A graph for each slice of some inputs; other inputs are carried from slice to slice."""
        attributes = {
            "num_scan_inputs": int(num_scan_inputs),
            "scan_input_axes": list(scan_input_axes),
            "scan_input_directions": list(scan_input_directions),
            "scan_output_axes": list(scan_output_axes),
            "scan_output_directions": list(scan_output_directions),
        }
        if not 1 <= num_scan_inputs <= len(args) or len(scan_input_axes) > num_scan_inputs:
            raise popart_exception(
                f"Scan of {len(args)} inputs with num_scan_inputs={num_scan_inputs} and axes "
                f"{list(scan_input_axes)}: expected 1 … {len(args)}, and an axis for each or none"
            )
        self._bind_types(body, args, num_scan_inputs, scan_input_axes)
        ids = self._with_graphs("Scan", args, num_outputs, {"body": body}, attributes, debugContext)
        n_carried = len(args) - num_scan_inputs
        types = _output_types(body)
        first = type_of(self._graph.find_type(args[n_carried]) or TypeProto())
        axis = scan_input_axes[0] if scan_input_axes else 0
        n_steps = first.shape[axis] if first.shape is not None else None
        stacked = []
        for i, result in enumerate(types[n_carried:]):
            shape = list(result.shape) if result.shape is not None else None
            if shape is not None:
                at = scan_output_axes[i] if scan_output_axes else 0
                shape.insert(at if at >= 0 else len(shape) + 1 + at, n_steps)
            stacked.append(result.with_shape(shape) if shape is not None else result)
        self._note(ids, [*types[:n_carried], *stacked])
        return ids

    def _bind_types(
        self, body: object, args: Sequence[str], n_scanned: int = 0, axes: Sequence[int] = ()
    ) -> None:
        """Types for inputs of a body that has none: those of `args`, or of their slices."""
        types = [type_of(self._graph.find_type(id) or TypeProto()) for id in args]
        n_carried = len(args) - n_scanned
        for i in range(n_scanned):
            whole = types[n_carried + i]
            if whole.shape is not None:
                shape = list(whole.shape)
                shape.pop(axes[i] if axes else 0)
                types[n_carried + i] = whole.with_shape(shape)
        names = [value.name for value in _graph_of(body).proto.input]
        _graph_of(body).bind_types(names, [t.proto() if t.element else None for t in types])

    def _with_graphs(
        self,
        type: str,
        args: Sequence[str],
        n_outputs: int,
        graphs: dict[str, Any],
        attributes: dict[str, Any],
        debug: str | DebugContext,
    ) -> list[str]:
        operator = self._operators()[{"If": "logical_if"}.get(type, type.lower())]
        made = [
            helper.make_attribute(name, _graph_of(builder).finished())
            for name, builder in graphs.items()
        ]
        made += [
            helper.make_attribute(name, value)
            for name, value in attributes.items()
            if not isinstance(value, list) or value
        ]
        return self._emit(operator, _as_list(args), made, n_outputs, text_of(debug))

    def _note(self, ids: Sequence[str], types: Sequence[InferredType]) -> None:
        for id, result in zip(ids, types, strict=False):
            if result.element:
                self._graph.types[id] = result.proto()


class AiOnnxMl(OpSet):
    """ONNX's operators of classical machine learning."""

    domain = ML_DOMAIN


class AiGraphcore(OpSet):
    """PopART's own operators."""

    domain = GRAPHCORE_DOMAIN

    def _operators(self) -> dict[str, OperatorMethod]:
        return graphcore_operators()

    def _stored(self, attribute: MethodAttribute, value: object) -> AttributeProto | None:
        if value is None or (isinstance(value, tuple | list) and not len(value)):
            return None
        value = value.numbers() if isinstance(value, CommGroup) else value
        plain = stored_value(attribute.name, value)
        plain = float(plain) if attribute.kind == AttributeProto.FLOAT else plain
        return helper.make_attribute(attribute.name, plain, attr_type=attribute.kind or None)

    def call(
        self,
        args: Sequence[str],
        num_outputs: int,
        callee: object,
        debugContext: str | DebugContext = "",
    ) -> list[str]:
        """Call a separate graph, whose inputs in order are `args`."""
        graph = _graph_of(callee)
        counts = (
            ("inputs", len(args), len(graph.arguments)),
            ("outputs", num_outputs, len(graph.proto.output)),
        )
        for what, n_given, n_expected in counts:
            if n_given != n_expected:
                raise popart_exception(
                    f"For CallOp '{text_of(debugContext)}', number of {what} ({n_given}) does not"
                    f" match that of the callee subgraph ({n_expected})"
                )
        graph.bind_types(graph.arguments, [self._graph.find_type(id) for id in args])
        operator = OperatorMethod(GRAPHCORE_DOMAIN, "Call", (0, 2**31), (1, 2**31), ())
        graph = helper.make_attribute("callee", graph.callee())
        ids = self._emit(operator, _as_list(args), [graph], num_outputs, text_of(debugContext))
        for id, result in zip(ids, _output_types(callee), strict=False):
            if result.element:
                self._graph.types[id] = result.proto()
        return ids

    def printtensor(
        self,
        args: Sequence[str],
        print_gradient: int = 1,
        debugContext: str | DebugContext = "",
        title: str = "",
        **more: object,
    ) -> str:
        """The tensor itself, which is printed when the program runs, and its gradient."""
        method = self._method(graphcore_operators()["printtensor"])
        name = more.pop("debugPrefix", debugContext)
        result = method(args, print_gradient, title=title, debugContext=name, **more)
        assert isinstance(result, str), "PrintTensor has one result"
        return result

    def reshape(
        self,
        args: str | Sequence[str],
        shape: Sequence[int],
        debugContext: str | DebugContext = "",
    ) -> str:
        """Elements in another shape; `args` is an id, or a list with one."""
        ids = [args] if isinstance(args, str) else list(args)
        result = self._method(graphcore_operators()["reshape"])(ids, list(shape), debugContext)
        assert isinstance(result, str), "Reshape has one result"
        return result

    def multiconv(
        self, args: Sequence[Sequence[str]], *rest: object, **kwargs: object
    ) -> list[str]:
        """Convolutions at the same time: `args` has [data, weights] of each, or with a bias.

        Attributes are lists with an entry for each convolution.
        """
        operator = graphcore_operators()["multiconv"]
        names = [attribute.name for attribute in operator.attributes]
        values = {**dict(zip(names, rest, strict=False)), **kwargs}
        flat = {
            key: [n for part in value for n in (part if isinstance(part, list | tuple) else [part])]
            if isinstance(value, list | tuple)
            else value
            for key, value in values.items()
        }
        inputs = [id for group in args for id in (*group, "", "")[:3]]
        result = self._method(operator)(inputs, len(args), **flat)
        assert isinstance(result, list), "several convolutions have several results"
        return result

    def packedDataBlock(
        self,
        args: Sequence[str],
        maxSequenceLengths: Sequence[int],
        resultSize: int,
        callbackBatchSize: int,
        callback: object,
        debugContext: str | DebugContext = "",
    ) -> str:
        """A graph over sequences that are packed in one tensor."""
        operator = OperatorMethod(GRAPHCORE_DOMAIN, "PackedDataBlock", (1, 2**31), (1, 1), ())
        attributes = [
            helper.make_attribute("maxSequenceLengths", list(maxSequenceLengths)),
            helper.make_attribute("resultSize", int(resultSize)),
            helper.make_attribute("callbackBatchSize", int(callbackBatchSize)),
            helper.make_attribute("callback", _graph_of(callback).finished()),
        ]
        id = self._emit(operator, _as_list(args), attributes, 1, text_of(debugContext))[0]
        result = _output_types(callback)[0]
        if result.shape is not None:
            shape = (resultSize, *result.shape[2:])
            self._graph.types[id] = result.with_shape(shape).proto()
        return id


def _as_list(args: str | Sequence[str]) -> list[str]:
    if isinstance(args, str):
        raise popart_exception(f"Inputs are a list of ids, got the text {args!r}: write [{args!r}]")
    return [str(id) for id in args]


def _graph_of(builder: object) -> GraphInProgress:
    """The graph that a builder has made; an error if it is something else."""
    graph = getattr(builder, "_graph", None)
    if not isinstance(graph, GraphInProgress):
        raise popart_exception(
            f"Expected the builder of a graph, got {builder!r}: use createSubgraphBuilder()"
        )
    return graph


def _output_types(builder: object) -> list[InferredType]:
    graph = _graph_of(builder)
    return [type_of(graph.find_type(v.name) or TypeProto()) for v in graph.proto.output]


def _described(operator: OperatorMethod) -> str:
    """A docstring from what is known of an operator."""
    domain = operator.domain or "ai.onnx"
    takes = f"\n\nInputs: {', '.join(operator.inputs)}." if operator.inputs else ""
    about = f"\n\n{operator.entry.about}" if operator.entry is not None else ""
    return f"Append {operator.type} of {domain}; gives the ids of its results.{about}{takes}"
