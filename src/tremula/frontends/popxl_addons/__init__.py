"""PopXL addons: named variables, modules, transforms of graphs, optimiser steps, task sessions."""

from tremula.base.names import install as install_names

install_names()  # its modules are written against PopXL's names
