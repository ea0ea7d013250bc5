"""Power that chips and machines draw: joules of a program over its time, by the energy model.

Public figures are averages over programs that are not stated. They are compared with what the model
says of products in halves, alone or as in the layers of a transformer that is trained. Of a machine
only its chips are modelled: fans, streaming memory and the gateway are not.
"""

from tremula.compiler.compile import compile_graph
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.target import IPUModel
from tremula.poplibs.poplin.product.mat_mul import (
    create_mat_mul_input_lhs,
    create_mat_mul_input_rhs,
    mat_mul,
)
from tremula.runtime.forecast import forecast
from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.matmul import type_of
from tremula.validate.workloads.table import ModelledValue, workload

FAMILY = "energy"
Product = tuple[int, int, int]  # rows of a batch, inputs, outputs


def watts_of_products(chip_name: str, products: list[Product], row: MeasuredRow) -> float:
    """Mean power of one chip that computes products one after another."""
    element = type_of(row, "dtype", "fp16")
    graph, sequence = Graph(IPUModel(chip_name).create_target()), Sequence()
    for number, (n, k, m) in enumerate(products):
        sides, name = ((n, k), (k, m)), f"product{number}"
        left = create_mat_mul_input_lhs(graph, element, *sides, f"{name}/left")
        right = create_mat_mul_input_rhs(graph, element, *sides, f"{name}/right")
        mat_mul(graph, left, right, sequence)
    return forecast(compile_graph(graph, sequence)).energy.watts


@workload("^chip power under dense products", FAMILY)
def dense_products(row: MeasuredRow, chip_name: str) -> ModelledValue:
    m, k, n = (row.number(name) for name in "mkn")
    watts = row.n_ipus * watts_of_products(chip_name, [(n, k, m)], row)
    return ModelledValue(0.0, 1.0, value=watts)


@workload("^machine power under training of transformers", FAMILY)
def transformer_layer(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """The products of a layer forward; gradients are twice as many of the same sizes."""
    tokens, hidden = row.number("tokens"), row.number("hidden")
    products = [
        (tokens, hidden, hidden),
        (tokens, hidden, 4 * hidden),
        (tokens, 4 * hidden, hidden),
    ]
    watts = row.n_ipus * watts_of_products(chip_name, products, row)
    return ModelledValue(0.0, 1.0, value=watts)
