"""Helpers around models that train, under the names that scripts import."""

from tremula.frontends.geometric.common import DataBatch, HeteroDataBatch
from tremula.frontends.geometric.training import TrainingStepper, set_aggregation_dim_size

__all__ = ["DataBatch", "HeteroDataBatch", "TrainingStepper", "set_aggregation_dim_size"]
