"""PopXL addons: named variables, modules, transforms of graphs, optimiser steps, task sessions."""
