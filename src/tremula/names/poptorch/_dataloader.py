"""Data loading under the names that existing scripts import."""

from tremula.frontends.poptorch.data.async_data import AsynchronousDataAccessor
from tremula.frontends.poptorch.data.dataloader import DataLoader

__all__ = ["AsynchronousDataAccessor", "DataLoader"]
