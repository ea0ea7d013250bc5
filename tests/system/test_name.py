"""`tremula.system` is a package and, as before it, a function."""

import tremula
import tremula.system.control.placement


def test_the_package_is_still_the_function():
    """Once some of the package is loaded, `tremula.system("pod64")` is a machine all the same."""
    assert tremula.system("pod64", chip="gc200").n_ipus == 64
    assert tremula.system.control.placement.place is not None
