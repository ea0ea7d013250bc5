"""Processes: what they do with memory that they have freed."""

import os
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


HUGE_PAGES = """
from threading import Thread
from numpy._core import multiarray
from tremula.base.processes import small_pages

def asks_for_huge_pages():
    result = multiarray._set_madvise_hugepage(True)
    multiarray._set_madvise_hugepage(result)
    return result

def in_a_thread():
    with small_pages():
        pass

before = asks_for_huge_pages()
with small_pages():
    assert not asks_for_huge_pages()
    thread = Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert not asks_for_huge_pages()
assert asks_for_huge_pages() == before
"""


@pytest.mark.parametrize("setting", ["0", "1"])
def test_small_pages_end_with_the_last_block(setting):
    """What NumPy asks for is as it was, also when another thread's block ends first."""
    environment = os.environ | {"NUMPY_MADVISE_HUGEPAGE": setting}
    subprocess.run([sys.executable, "-c", HUGE_PAGES], check=True, env=environment)
