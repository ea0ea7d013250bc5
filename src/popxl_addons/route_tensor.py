"""Tensors of outer graphs as inputs of inner ones.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.graphs.route_tensor import (
    called_graph_paths,
    connect_call_op,
    connect_loop_op,
    connect_tensor_to_ops_on_path,
    is_subgraph,
    route_tensor_into_graph,
)

__all__ = [
    "called_graph_paths",
    "connect_call_op",
    "connect_loop_op",
    "connect_tensor_to_ops_on_path",
    "is_subgraph",
    "route_tensor_into_graph",
]
