"""For all tests: one thread per worker, reproducible hypothesis runs, paths, the C++ compiler."""

import fcntl
import gc
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

import tremula
from tests.logs import Logged
from tests.sampling import PROFILE, SAMPLE, n_examples
from tests.variables import ROOT, set_variables

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
set_variables(IS_WORKER)

# Tests import poptorch, popart, … as scripts do. Processes that they start inherit it.
tremula.install()

# Nothing that is logged goes to the standard error, and no script changes where it goes.
logging.getLogger().addHandler(logging.NullHandler())

# Compilers allocate much and leave little garbage: looking for it less often saves a tenth of all.
gc.set_threshold(50_000, 20, 100)

# The same examples in every run and on every machine. HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile(SAMPLE, derandomize=True, deadline=None, database=None)
settings.register_profile("wide", derandomize=True, deadline=None, database=None)
settings.register_profile("search", deadline=None, database=None, max_examples=1000)
settings.load_profile(PROFILE)
if PROFILE != "search":
    # Hypothesis also tries constants that it reads in the sources of all modules that are loaded,
    # generated kernels among them: examples would depend on which tests ran before, and the first
    # run would parse thousands of files.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Property tests run a third of the examples they state; `make test-wide` runs all."""
    for function in {getattr(item, "obj", None) for item in items if not _is_wide(item)}:
        stated = getattr(function, "_hypothesis_internal_use_settings", None)
        if stated is not None:
            sampled = settings(stated, max_examples=n_examples(stated.max_examples))
            function._hypothesis_internal_use_settings = sampled


def _is_wide(item: pytest.Item) -> bool:
    return item.get_closest_marker("wide") is not None


def pytest_collection_finish() -> None:
    """Leave the libraries that test modules have imported out of garbage collections.

    Some functions of Keras, accelerate and PyTorch collect everything each time they are called.
    """
    freeze_modules()


def pytest_runtest_teardown() -> None:
    """Leave libraries that a test has imported out as well."""
    if len(sys.modules) > freeze_modules.n_modules + 100:
        freeze_modules()


def freeze_modules() -> None:
    """Treat all objects there are as permanent."""
    gc.freeze()
    freeze_modules.n_modules = len(sys.modules)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()  # a worker's lies inside the run's
    return base.parent if IS_WORKER else base


@pytest.fixture(scope="session")
def made_once(shared_folder: Path) -> Callable[[str, Callable[[Path], object]], Path]:
    """`made_once(name, make)`: the folder that `make(folder)` filled, once for all workers."""

    def folder_of(name: str, make: Callable[[Path], object]) -> Path:
        folder = shared_folder / name
        with (shared_folder / f"{name}.lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            if not lock.read():
                folder.mkdir()
                make(folder)
                lock.write("made")
        return folder

    return folder_of


@pytest.fixture
def logged() -> Iterator[Logged]:
    """What is logged while the test runs.

    Instead of pytest's `caplog`, whose plugin looks at thousands of loggers six times per test.
    """
    handler, root = Logged(), logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


@pytest.fixture(scope="session")
def gxx() -> str:
    """The path of g++. C++ codelets need it: without it their tests fail, they do not skip."""
    path = shutil.which("g++")
    if path is None:
        pytest.fail(
            "g++ is not installed, and C++ codelets cannot be tested without it.\n"
            "  try: apt-get install g++   (Fedora: dnf install gcc-c++, "
            "macOS: xcode-select --install)",
            pytrace=False,
        )
    return path
