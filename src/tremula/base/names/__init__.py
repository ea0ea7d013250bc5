"""The hook by which scripts import `poptorch`, `popart`, … from Tremula; see docs/names.md."""

from tremula.base.names.finder import install, is_installed, uninstall
from tremula.base.names.table import NAMES, VendorName

__all__ = ["NAMES", "VendorName", "install", "is_installed", "uninstall"]
