"""Processes: what they do with memory that they have freed."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from tremula.base.processes import keep_freed_memory

def faults_of_columns():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        np.ones(2**23)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults_of_columns()
assert keep_freed_memory()
faults_of_columns()
print(faults_of_columns(), first)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone is told")
def test_freed_memory_is_used_again():
    """Columns that are made again and again take hardly any page faults."""
    command = [sys.executable, "-c", FAULTS]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    kept, first = map(int, printed.split())
    assert kept * 10 < first
