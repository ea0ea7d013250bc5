"""Which changes of source make stored machine code out of date."""

import importlib.util
import linecache
import sys

import pytest

from tremula.codelets.native import sources
from tremula.codelets.native.stored_code import jit

HELPERS = """
import functools

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

SCALE, TABLE = 3, np.arange(4)
UNUSED = 1

@njit
def inner(x):
    return x + 1

@njit
def outer(x):
    return inner(x) * SCALE

class Block:
    def emitted(self, builder, value):
        return builder.add(value, value)

@intrinsic
def doubled(typing_context, x):
    def code(context, builder, signature, args):
        return Block().emitted(builder, args[0])
    return types.int64(types.int64), code
"""
CALLERS = {
    "called": "from {} import outer\ndef run(x):\n    return outer(x)\n",
    "by module": "import {} as helpers\ndef run(x):\n    return helpers.outer(x)\n",
    "intrinsic": "from {} import doubled\ndef run(x):\n    return doubled(x)\n",
    "constant": "from {} import SCALE\ndef run(x):\n    return x * SCALE\n",
    "array": "from {} import TABLE\ndef run(x):\n    return x * TABLE[2]\n",
    "none": "import {}\ndef run(x):\n    return x\n",
}
CHANGES = [  # of the helpers, who reads it, and what `run(5)` returns then
    ("x + 1", "x + 2", {"called", "by module"}, 21),
    ("SCALE, TABLE = 3", "SCALE, TABLE = 4", {"called", "by module", "constant"}, None),
    ("np.arange(4)", "np.arange(4) + 1", {"array"}, 15),
    ("builder.add(value, value)", "builder.mul(value, value)", {"intrinsic"}, 25),
]


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Write a module and import it as another process would, for the first time."""
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path / "cache"))

    def imported(name, text):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        linecache.checkcache(str(path))
        sources._hash_of_file.cache_clear()
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(text, str(path), "exec"), module.__dict__)
        return module

    return imported


def _runs(load):
    """The function of each caller."""
    texts = ((who, text.format("helpers_of_a_test")) for who, text in CALLERS.items())
    return {who: load(f"calls_{who.replace(' ', '_')}", text).run for who, text in texts}


@pytest.mark.parametrize(("before", "after", "readers", "result"), CHANGES)
def test_code_is_out_of_date_where_something_it_reads_changed(load, before, after, readers, result):
    """A change in another file gives the functions that read it other keys, and other results."""
    load("helpers_of_a_test", HELPERS)
    old = _runs(load)
    keys = {who: sources.source_key(run) for who, run in old.items()}
    assert len(set(keys.values())) == len(keys)
    load("helpers_of_a_test", HELPERS.replace(before, after))
    new = _runs(load)
    changed = {who for who, run in new.items() if sources.source_key(run) != keys[who]}
    assert changed >= readers
    assert "none" not in changed
    if result is not None:
        who = min(readers)
        assert jit()(old[who])(5) != result
        assert jit()(new[who])(5) == result


def test_a_key_is_the_same_in_every_process(load):
    """Another load of equal texts has equal keys: addresses of objects are not part of them."""
    load("helpers_of_a_test", HELPERS)
    first = {who: sources.source_key(run) for who, run in _runs(load).items()}
    load("helpers_of_a_test", HELPERS)
    assert {who: sources.source_key(run) for who, run in _runs(load).items()} == first


def test_constants_that_are_not_read_do_not_count(load):
    """A function that reads one constant of a file does not depend on the rest of the file."""
    load("helpers_of_a_test", HELPERS)
    before = sources.source_key(_runs(load)["constant"])
    load("helpers_of_a_test", HELPERS.replace("UNUSED = 1", "UNUSED = 2"))
    assert sources.source_key(_runs(load)["constant"]) == before
