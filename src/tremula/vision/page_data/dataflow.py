"""What the Graph and Tensors views fetch: which steps read and write which variables."""

import numpy as np

from tremula.base.errors import PoplarError
from tremula.vision.page_data.pack import pack_of
from tremula.vision.pva.tile_program import accesses_of_step
from tremula.vision.report.reader import ReportReader

Ints = np.ndarray


def dataflow_pack(reader: ReportReader) -> bytes:
    """CSR of steps: ids of variables they read and write, if the report holds its program."""
    try:
        executable = reader.kept_executable
    except PoplarError as error:
        return pack_of({"why_not": str(error)})
    pairs = [accesses_of_step(executable, step) for step in range(reader.n_steps)]
    columns: dict[str, Ints] = {}
    for name, lists in (("read", [r for r, _ in pairs]), ("write", [w for _, w in pairs])):
        columns[f"{name}_start"] = np.cumsum([0, *map(len, lists)])
        columns[f"{name}_variable"] = np.concatenate([np.empty(0, np.int64), *lists])
    return pack_of({"why_not": ""}, columns)
