"""What the process does once from which `tests/scripts.py` forks: slow imports, Numba's tables.

No front end is imported: scripts check what their imports load.
"""

import gc

import torch._dynamo  # noqa: F401 - `torch.optim` imports it with the first optimiser
import torch_geometric  # noqa: F401
from numba.core.registry import cpu_target

import tremula.compiler.compile
import tremula.ir.lowering.program.build
import tremula.ir.run.compiled_step
import tremula.ir.run.tile_cache
import tremula.ir.run.tile_program
import tremula.runtime.engine
import tremula.runtime.forecast  # noqa: F401

cpu_target.target_context.refresh()  # otherwise the first kernel of each script does

# A collection would write to pages that forks share.
gc.freeze()
