"""Operations with static shapes, under the names that scripts import."""

from tremula.frontends.geometric.ops.neighbours import (
    knn,
    knn_graph,
    knn_interpolate,
    radius,
    radius_graph,
)
from tremula.frontends.poptorch.ops.points import nearest

__all__ = ["knn", "knn_graph", "knn_interpolate", "nearest", "radius", "radius_graph"]
