"""Redirections: `import poptorch` and its siblings are Tremula's, in every process.

Python calls `start` from tremula_names.pth. Only the import of a name loads anything of Tremula.
Where another project has the name, it is an ImportError that says whose it is. The environment
variable TREMULA_NAMES=off switches all of it off.
"""

import os
import sys

# First parts of the names in tremula/base/names/table.py.
ROOTS = frozenset(
    "horovod ipu_tensorflow_addons libpvti optimum popart popdist poptorch poptorch_geometric "
    "popxl popxl_addons pva tessellate_ipu".split()
)


class Redirections:
    """Finds the names through Tremula's hook, which is loaded when it is first needed."""

    is_tremulas = True

    def find_spec(self, fullname, path=None, target=None):  # noqa: ANN001, ANN201 - no typing here
        """As importlib calls it; None for all other modules."""
        if fullname.partition(".")[0] not in ROOTS:
            return None
        try:
            from tremula.base.names.finder import NamesFinder
        except ModuleNotFoundError:  # Tremula was uninstalled
            return None
        return NamesFinder(gives_way=True).find_spec(fullname, path, target)


def start() -> None:
    """Put the redirections in place, unless the environment says otherwise."""
    is_off = os.environ.get("TREMULA_NAMES", "") == "off"
    if not is_off and not any(type(finder) is Redirections for finder in sys.meta_path):
        sys.meta_path.insert(0, Redirections())
