"""Data loading under the names that existing scripts import."""

from tremula.frontends.torch.async_data import AsynchronousDataAccessor
from tremula.frontends.torch.dataloader import DataLoader

__all__ = ["AsynchronousDataAccessor", "DataLoader"]
