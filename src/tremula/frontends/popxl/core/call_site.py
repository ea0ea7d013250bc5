"""How a call binds tensors of the calling graph to inputs and outputs of the graph called."""

from collections.abc import Sequence

from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.tensor import Tensor


class CallSiteInfo:
    """A call or loop: which tensor outside is which inside."""

    def __init__(self, op: Op):
        self._op = op

    @property
    def called_graph(self) -> Graph:
        return self._op.graphs[0]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors given to the call, in the order of the graph's inputs."""
        return tuple(self._op.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Tensors that the call makes, in the order of the graph's outputs."""
        return tuple(self._op.outputs)

    def parent_input(self, idx: int) -> Tensor:
        return self._op.inputs[_checked(idx, self._op.inputs, "input")]

    def parent_output(self, idx: int) -> Tensor:
        return self._op.outputs[_checked(idx, self._op.outputs, "output")]

    def graph_input(self, idx: int) -> Tensor:
        return self.called_graph.inputs[_checked(idx, self.called_graph.inputs, "input")]

    def graph_output(self, idx: int) -> Tensor:
        return self.called_graph.outputs[_checked(idx, self.called_graph.outputs, "output")]

    def graph_to_parent_input_index(self, idx: int) -> int:
        return _checked(idx, self.called_graph.inputs, "input")

    def parent_to_graph_input_index(self, idx: int) -> int:
        return _checked(idx, self._op.inputs, "input")

    def graph_to_parent_output_index(self, idx: int) -> int:
        return _checked(idx, self.called_graph.outputs, "output")

    def parent_to_graph_output_index(self, idx: int) -> int:
        return _checked(idx, self._op.outputs, "output")

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """The tensor outside of an input or output inside."""
        graph = self.called_graph
        for inner, outer in ((graph.inputs, self._op.inputs), (graph.outputs, self._op.outputs)):
            if graph_tensor in inner:
                return outer[inner.index(graph_tensor)]
        raise ValueError(
            f"{graph_tensor!r} is neither an input nor an output of the graph called, {graph.id}"
        )

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """The input inside that a tensor outside is given to; of several, the first."""
        graph = self.called_graph
        for outer, inner in ((self._op.inputs, graph.inputs), (self._op.outputs, graph.outputs)):
            if parent_tensor in outer:
                return inner[outer.index(parent_tensor)]
        raise ValueError(f"{parent_tensor!r} is neither an input nor an output of this call")

    def set_parent_input_modified(
        self,
        parent_tensor: Tensor,
        infer_modified_regions: bool = False,  # noqa: ARG002
    ) -> None:
        """Say that the graph changes this input: it is passed by reference."""
        if parent_tensor not in self._op.inputs:
            raise ValueError(f"{parent_tensor!r} is not an input of this call")
        places = {i for i, t in enumerate(self._op.inputs) if t == parent_tensor}
        self._op.attributes["modified"] |= places
        self._op.graph.changed()

    def __repr__(self) -> str:
        return f"CallSiteInfo[{self._op!r}, graph={self.called_graph.id}]"


class ConditionalSiteInfo(CallSiteInfo):
    """A branch: which tensor outside is which inside, for both graphs."""

    @property
    def called_graph(self) -> tuple[Graph, Graph]:  # type: ignore[override]
        """The branches: then, else."""
        return self.then_graph, self.else_graph

    @property
    def then_graph(self) -> Graph:
        return self._op.graphs[0]

    def _places(self, then_branch: bool) -> list[int]:
        return dict(self._op.layout)["then" if then_branch else "else"]

    def graph_to_parent_input_index(self, idx: int, then_branch: bool = True) -> int:
        places = self._places(then_branch)
        return places[_checked(idx, places, "input")]

    def is_parent_index_in_then_branch(self, idx: int) -> bool:
        """Whether an input outside goes to the first graph; it may go to the second only."""
        is_then = idx in self._places(True)
        if not is_then and idx not in self._places(False):
            raise IndexError(f"Input {idx} goes to neither branch")
        return is_then

    def parent_to_graph_input_index(self, idx: int) -> int:
        return self._places(self.is_parent_index_in_then_branch(idx)).index(idx)

    def graph_to_parent_output_index(self, idx: int, then_branch: bool = True) -> int:
        return _checked(idx, self.called_graph[not then_branch].outputs, "output")

    def parent_to_graph_output_index(self, idx: int, then_branch: bool = True) -> int:
        return _checked(idx, self.called_graph[not then_branch].outputs, "output")

    @property
    def else_graph(self) -> Graph:
        return self._op.graphs[1]

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """The tensor outside of an input or output of either branch."""
        places = dict(self._op.layout)
        for graph, name in ((self.then_graph, "then"), (self.else_graph, "else")):
            if graph_tensor in graph.inputs:
                return self._op.inputs[places[name][graph.inputs.index(graph_tensor)]]
            if graph_tensor in graph.outputs:
                return self._op.outputs[graph.outputs.index(graph_tensor)]
        raise ValueError(f"{graph_tensor!r} is neither an input nor an output of a branch")

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """The input inside that a tensor outside is given to; of several, the first."""
        if parent_tensor not in self._op.inputs:
            raise ValueError(f"{parent_tensor!r} is not an input of this branch")
        idx = self._op.inputs.index(parent_tensor)
        graph = self.called_graph[not self.is_parent_index_in_then_branch(idx)]
        return graph.inputs[self.parent_to_graph_input_index(idx)]

    def set_parent_input_modified(
        self,
        parent_tensor: Tensor,
        infer_modified_regions: bool = True,
    ) -> None:
        """Branches take their inputs by value."""
        raise NotImplementedError(
            f"A branch does not write its inputs, so {parent_tensor!r} cannot be modified by it"
        )


def modified_inputs(op: Op) -> set[int]:
    """Inputs of a call that are passed by reference."""
    graph = op.graphs[0]
    by_ref = {i for i, t in enumerate(graph.inputs) if t in graph.by_ref_inputs}
    return by_ref | op.attributes.get("modified", set())


def _checked(idx: int, of: Sequence[object], what: str) -> int:
    if not 0 <= idx < len(of):
        raise IndexError(f"There is no {what} {idx}: there are {len(of)}")
    return idx
