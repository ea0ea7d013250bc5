"""A gradient graph, and how its inputs and outputs belong to the graph that it differentiates."""

from dataclasses import dataclass
from enum import Enum

from tremula.frontends.popxl.core.call_site import CallSiteInfo
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.tensor import Tensor


class ExpectedConnectionType(Enum):
    """What an input or output of a gradient graph is: a forward tensor, or a gradient by one."""

    Fwd = "Fwd"
    FwdGrad = "FwdGrad"


@dataclass(frozen=True)
class ExpectedConnection:
    """An input or output of a gradient graph, by the forward tensor that it belongs to."""

    connection_type: ExpectedConnectionType
    fwd_tensor: Tensor

    def __repr__(self) -> str:
        return f"({self.connection_type.name}, {self.fwd_tensor.id})"


@dataclass(frozen=True, eq=False, repr=False)
class GradGraphInfo:
    """A gradient graph, and how its inputs and outputs belong to the forward graph."""

    graph: Graph
    forward_graph: Graph
    expected_inputs: tuple[ExpectedConnection, ...]
    expected_outputs: tuple[ExpectedConnection, ...]

    @property
    def inputs(self) -> tuple[ExpectedConnection, ...]:
        return self.expected_inputs

    @property
    def outputs(self) -> tuple[ExpectedConnection, ...]:
        return self.expected_outputs

    def inputs_dict(self, fwd_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """Inputs of the gradient graph that a forward call provides."""
        if fwd_call_info.called_graph is not self.forward_graph:
            raise TypeError(
                f"The call is one of {fwd_call_info.called_graph.id}, but the gradient is that of"
                f" {self.forward_graph.id}"
            )
        return {
            inner: fwd_call_info.graph_to_parent(e.fwd_tensor)
            # A graph may have got inputs since, such as accumulators.
            for inner, e in zip(self.graph.inputs, self.expected_inputs, strict=False)
            if e.connection_type is ExpectedConnectionType.Fwd
        }

    def fwd_graph_ins_to_grad_parent_outs(
        self, grad_call_info: CallSiteInfo
    ) -> dict[Tensor, Tensor]:
        """For inputs of the forward graph, the tensors that a gradient call makes."""
        return {
            e.fwd_tensor: grad_call_info.parent_output(i)
            for i, e in enumerate(self.expected_outputs)
        }

    def fwd_parent_ins_to_grad_parent_outs(
        self, fwd_call_info: CallSiteInfo, grad_call_info: CallSiteInfo
    ) -> dict[Tensor, Tensor]:
        """For tensors given to a forward call, the tensors that a gradient call makes."""
        result = self.fwd_graph_ins_to_grad_parent_outs(grad_call_info)
        return {fwd_call_info.graph_to_parent(t): grad for t, grad in result.items()}

    def __repr__(self) -> str:
        return (
            f"GradGraphInfo[\n  graph={self.graph},\n  forward_graph={self.forward_graph},"
            f"\n  expected_inputs={list(self.expected_inputs)},"
            f"\n  expected_outputs={list(self.expected_outputs)}\n]"
        )
