"""Packages by the names of other projects, for scripts: tremula.base.names loads them as such."""
