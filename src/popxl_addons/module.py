"""Modules with named variables.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.graphs.cache import (
    GraphCache,
)
from tremula.frontends.popxl_addons.graphs.graph import (
    BoundGraph,
    GradGraphInfoLike,
    GraphLike,
    GraphWithNamedArgs,
)
from tremula.frontends.popxl_addons.graphs.module import (
    Module,
    NameScopeMeta,
)
from tremula.frontends.popxl_addons.graphs.own_gradients import (
    create_grad_graph_info,
)
from tremula.frontends.popxl_addons.named.factories import (
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)
from tremula.frontends.popxl_addons.named.tensors import (
    NamedTensors,
)
from tremula.frontends.popxl_addons.utils import (
    OrderedDict,
    duplicate_items,
    overrides,
)

__all__ = [
    "BoundGraph",
    "GradGraphInfoLike",
    "GraphCache",
    "GraphLike",
    "GraphWithNamedArgs",
    "Module",
    "NameScopeMeta",
    "NamedTensors",
    "NamedVariableFactories",
    "OrderedDict",
    "VariableFactory",
    "add_replica_sharded_variable_input",
    "add_variable_input",
    "create_grad_graph_info",
    "duplicate_items",
    "overrides",
]
