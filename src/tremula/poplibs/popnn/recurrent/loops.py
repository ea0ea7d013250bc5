"""What recurrent nets share: loops over time, and the products that need no loop.

Sequences are [n_steps, n_batches, size]. Only the product with the last state is inside the loop;
inputs of all steps, gradients of all weights and of all inputs are one product each.
"""

from collections.abc import Callable
from math import prod
from typing import TypeVar, Unpack

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, UNSIGNED_INT, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Repeat, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import popops
from tremula.poplibs.poplin.product.mat_mul import (
    ProductOptions,
    create_mat_mul_input_lhs,
    create_mat_mul_input_rhs,
    mat_mul,
)
from tremula.poplibs.popops.elementwise.expr import _1, _2
from tremula.poplibs.registry import PoplibsError

Weights = TypeVar("Weights")  # the named tuple of a cell


class TimeLoop:
    """Builds the body of a loop over time; `finish` appends the loop to a sequence."""

    def __init__(self, graph: Graph, n_steps: int, name: str, *, is_backward: bool = False) -> None:
        self.graph, self.n_steps, self.name = graph, n_steps, name
        self.is_backward = is_backward
        self.body = Sequence()
        # The number of this step and of the next: a state is stored one place after its step.
        self.now = graph.add_variable(UNSIGNED_INT, [1], f"{name}/step", mapping=0)
        self.after = graph.add_variable(UNSIGNED_INT, [1], f"{name}/nextStep", mapping=0)

    def take(self, values: Tensor, *, is_after: bool = False) -> Tensor:
        """The values [n_batches, size] of this step, or of the next."""
        at = self.after if is_after else self.now
        return popops.dynamic_slice(self.graph, values, at, self.body, f"{self.name}/take")[0]

    def put(self, values: Tensor, value: Tensor, *, is_after: bool = False) -> None:
        """Store the values of this step, or of the next."""
        at = self.after if is_after else self.now
        new = value.expand([0])
        popops.dynamic_update(self.graph, values, new, at, self.body, f"{self.name}/put")

    def finish(self, sequence: Sequence) -> None:
        first = self.n_steps - 1 if self.is_backward else 0
        popops.fill(self.graph, self.now, first, sequence, f"{self.name}/begin")
        popops.fill(self.graph, self.after, first + 1, sequence, f"{self.name}/begin")
        both = concat([self.now, self.after])
        step = _1 - 1 if self.is_backward else _1 + 1
        popops.map_in_place(self.graph, step, [both], self.body, f"{self.name}/count")
        sequence.add(Repeat(self.n_steps, self.body))


# Products of all steps at once have steps as positions, however few these are.
OF_STEPS = ProductOptions(columns_are_positions=False)


# -- creators: every cell has its own, made here ---------------------------------------------------


def input_creator(n_gates: int, default_name: str) -> Callable[..., Tensor]:
    def create_input(
        graph: Graph, type: Type | str, n_steps: int, n_batches: int, n_in: int, n_out: int,
        name: str = "",
    ) -> Tensor:  # fmt: skip
        """Inputs [n_steps, n_batches, n_in], laid out for the product with the input weights."""
        shapes = (n_steps * n_batches, n_in), (n_in, n_gates * n_out)
        made = create_mat_mul_input_lhs(graph, type, *shapes, name or default_name, **OF_STEPS)
        return made.reshape((n_steps, n_batches, n_in))

    return create_input


def state_creator(default_name: str) -> Callable[..., Tensor]:
    def create_initial_state(
        graph: Graph, type: Type | str, n_batches: int, n_out: int, name: str = ""
    ) -> Tensor:
        """A state [n_batches, n_out], spread over the tiles."""
        shape = [n_batches, n_out]
        return graph.add_variable(as_type(type), shape, name or default_name, mapping="linear")

    return create_initial_state


def weights_creator(
    weights: Callable[[Tensor, Tensor, Tensor], Weights], gates: tuple[int, ...], default_name: str
) -> Callable[..., Weights]:
    """`gates` are those that the state is multiplied with at once, product by product."""
    n_gates = sum(gates)

    def create_weights(
        graph: Graph, type: Type | str, n_steps: int, n_batches: int, n_in: int, n_out: int,
        name: str = "",
    ) -> Weights:  # fmt: skip
        """Weights laid out for the products of the forward pass."""
        name = name or default_name

        def made(n_rows: int, n_inner: int, n: int, **options: Unpack[ProductOptions]) -> Tensor:
            shapes = (n_rows, n_inner), (n_inner, n * n_out)
            matrix = create_mat_mul_input_rhs(graph, type, *shapes, name, **options)
            return matrix.expand([0]) if n == 1 else split_gates(matrix, n)

        inputs = made(n_steps * n_batches, n_in, n_gates, **OF_STEPS)
        outputs = [made(n_batches, n_out, n) for n in gates]
        shape = [n_gates, n_out]
        biases = graph.add_variable(as_type(type), shape, f"{name}/biases", mapping="linear")
        return weights(inputs, outputs[0] if len(gates) == 1 else concat(outputs), biases)

    return create_weights


# -- tensors of a loop -----------------------------------------------------------------------------


def add_sequence(graph: Graph, type: Type, shape: tuple[int, ...], name: str) -> Tensor:
    """A new [n_steps, …], each step spread over the tiles."""
    return popops.create_sliceable_tensor(graph, type, shape, name=name)


def sliceable(graph: Graph, values: Tensor, sequence: Sequence, name: str) -> Tensor:
    """A copy of a sequence from which a loop can take steps without moving them all."""
    copy = add_sequence(graph, values.type, values.shape, name)
    sequence.add(Copy(values, copy))
    return copy


def add_states(
    graph: Graph, initial: Tensor, n_steps: int, sequence: Sequence, name: str
) -> Tensor:
    """A new [n_steps + 1, n_batches, size] for a state before the first and after every step."""
    states = add_sequence(graph, initial.type, (n_steps + 1, *initial.shape), name)
    sequence.add(Copy(initial, states[0]))
    return states


def copied(graph: Graph, tensor: Tensor, sequence: Sequence, name: str) -> Tensor:
    """A new variable [n_batches, size] with a tensor's values, for a loop to change."""
    copy = graph.add_variable(tensor.type, tensor.shape, name, mapping="linear")
    sequence.add(Copy(tensor, copy))
    return copy


def zeros(
    graph: Graph, type: Type, shape: tuple[int, ...], sequence: Sequence, name: str
) -> Tensor:  # fmt: skip
    made = graph.add_variable(type, shape, name, mapping="linear")
    popops.zero(graph, made, sequence, name)
    return made


def last_state_gradient(
    graph: Graph, output_gradient: Tensor, sequence: Sequence, name: str
) -> Tensor:
    """What a backward loop starts from: the last output's gradient, or 0 if all are given."""
    if output_gradient.rank == 3:
        shape = output_gradient.shape[1:]
        return zeros(graph, output_gradient.type, shape, sequence, f"{name}/state")
    return copied(graph, output_gradient, sequence, f"{name}/state")


def add_own_gradient(
    loop: TimeLoop, state: Tensor, output_gradient: Tensor, sequence: Sequence
) -> None:
    """Add a step's own output gradient to that from later steps, if all are given."""
    if output_gradient.rank == 3:
        name = loop.name
        steps = sliceable(loop.graph, output_gradient, sequence, f"{name}/outputGradient")
        step_gradient = loop.take(steps)
        popops.map_in_place(loop.graph, _1 + _2, [state, step_gradient], loop.body, f"{name}/sum")


def joined_gates(weights: Tensor) -> Tensor:
    """Weights [n_gates, n_in, n_out] as one matrix [n_in, n_gates · n_out]."""
    n_gates, n_in, n_out = weights.shape
    return weights.dim_shuffle([1, 0, 2]).reshape((n_in, n_gates * n_out))


def split_gates(matrix: Tensor, n_gates: int) -> Tensor:
    """The inverse of `joined_gates`."""
    n_in, n_out = matrix.shape
    return matrix.reshape((n_in, n_gates, n_out // n_gates)).dim_shuffle([1, 0, 2])


def arranged(graph: Graph, n_rows: int, matrix: Tensor, sequence: Sequence, name: str) -> Tensor:
    """A copy of a matrix, laid out once for products with [n_rows, …] in every step of a loop."""
    left = (n_rows, matrix.shape[0])
    copy = create_mat_mul_input_rhs(graph, matrix.type, left, matrix.shape, name)
    sequence.add(Copy(matrix, copy))
    return copy


def project(
    graph: Graph, x: Tensor, weights: Tensor, biases: Tensor, sequence: Sequence, name: str
) -> Tensor:
    """What inputs of all steps contribute to the gates: [n_steps, n_batches, n_gates · n_out]."""
    n_steps, n_batches, n_in = x.shape
    matrix = joined_gates(weights)
    rows = x.reshape((n_steps * n_batches, n_in))
    product = mat_mul(graph, rows, matrix, sequence, f"{name}/input", **OF_STEPS)
    out = add_sequence(graph, x.type, (n_steps, n_batches, matrix.shape[1]), f"{name}/gates")
    operands = [product.reshape(out.shape), biases.flatten()]
    popops.map_with_output(graph, _1 + _2, operands, out, sequence, f"{name}/bias")
    return out


def input_gradient(
    graph: Graph, gates: Tensor, weights: Tensor, sequence: Sequence, name: str
) -> Tensor:
    """The gradient [n_steps, n_batches, n_in] of the inputs, from those of all gates."""
    n_steps, n_batches, n_out = gates.shape
    rows = gates.reshape((n_steps * n_batches, n_out))
    matrix = joined_gates(weights).transpose()
    product = mat_mul(graph, rows, matrix, sequence, f"{name}/inputGradient", **OF_STEPS)
    return product.reshape((n_steps, n_batches, weights.shape[1]))


def weight_gradient(
    graph: Graph, values: Tensor, gates: Tensor, n_gates: int, sequence: Sequence, name: str
) -> Tensor:
    """The gradient [n_gates, n_in, n_out] of weights that multiplied `values` in every step."""
    n_rows = prod(values.shape[:2])
    left = values.reshape((n_rows, values.shape[2])).transpose()
    product = mat_mul(
        graph, left, gates.reshape((n_rows, gates.shape[2])), sequence, f"{name}/weightGradient"
    )
    return split_gates(product, n_gates)


def bias_gradient(
    graph: Graph, gates: Tensor, n_gates: int, sequence: Sequence, name: str
) -> Tensor:
    """The gradient [n_gates, n_out] of biases."""
    total = popops.reduce(graph, gates, [0, 1], "ADD", sequence, f"{name}/biasGradient")
    return total.reshape((n_gates, total.n_elems // n_gates))


def gates_of(values: Tensor, n_gates: int) -> list[Tensor]:
    """The gates [n_batches, n_out] of a step's [n_batches, n_gates · n_out]."""
    n = values.shape[-1] // n_gates
    return [values[..., k * n : (k + 1) * n] for k in range(n_gates)]


def check_operands(
    op: str, x: Tensor, states: tuple[Tensor, ...], weights: tuple[Tensor, Tensor, Tensor],
    n_gates: int,
) -> None:  # fmt: skip
    """Raise unless shapes and types of a cell's operands fit."""
    inputs, outputs, biases = weights
    if x.type not in (FLOAT, HALF) or any(t.type is not x.type for t in (*states, *weights)):
        types = ", ".join(str(t.type) for t in (x, *states, *weights))
        raise PoplibsError(
            f"{op} works on float or half, all operands alike, got {types}.",
            source=user_source(),
            hint="cast them to one type",
        )
    n_in = x.shape[-1] if x.rank == 3 else 0
    n_out = biases.shape[-1] if biases.rank == 2 else 0
    wanted = ((n_gates, n_in, n_out), (n_gates, n_out, n_out), (n_gates, n_out))
    state = (x.shape[1] if x.rank == 3 else 0, n_out)
    fits = x.rank == 3 and x.n_elems and (inputs.shape, outputs.shape, biases.shape) == wanted
    if not fits or any(s.shape != state for s in states):
        got = ", ".join(str(list(t.shape)) for t in (x, *states, *weights))
        raise PoplibsError(
            f"{op} expected x [n_steps, n_batches, n_in], states [n_batches, n_out], weights "
            f"[{n_gates}, n_in, n_out], [{n_gates}, n_out, n_out], [{n_gates}, n_out], got {got}.",
            source=user_source(),
            hint="make them with create_input, create_initial_state and create_weights",
        )


def check_gradient(op: str, gradient: Tensor, outputs: Tensor) -> None:
    """Raise unless a gradient is that of all outputs, or of the last step's."""
    whole = outputs.shape
    if gradient.shape not in (whole, whole[1:]) or gradient.type is not outputs.type:
        raise PoplibsError(
            f"{op} expected an output gradient of {outputs.type} {list(whole)} or "
            f"{list(whole[1:])}, got {gradient.type} {list(gradient.shape)}.",
            source=user_source(),
            hint="give the gradient of the forward pass's output",
        )


def missing_intermediates(op: str) -> PoplibsError:
    return PoplibsError(
        f"{op} needs what an inference-only forward pass does not keep.",
        source=user_source(),
        hint="run the forward pass with inference_only=False",
    )
