"""Classes of batches, under the names that scripts import."""

from tremula.frontends.geometric.common import DataBatch, HeteroDataBatch, call_once

__all__ = ["DataBatch", "HeteroDataBatch", "call_once"]
