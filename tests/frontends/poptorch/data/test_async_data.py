"""AsynchronousDataAccessor: batches, epochs, errors, and what it leaves behind."""

import errno
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from tremula.frontends.poptorch.data import async_ring
from tremula.frontends.poptorch.data.async_data import AsynchronousDataAccessor, poptorchAtExit
from tremula.frontends.poptorch.enums import SharingStrategy
from tremula.frontends.poptorch.exceptions import Error
from tremula.frontends.poptorch.inputs.arguments import ICustomArgParser, registerCustomArgParser

# Another process imports the data sets by name: their folder must be on its path.
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from loader_data_sets import (  # noqa: E402
    CountedEpochs,
    Counting,
    Dying,
    Failing,
    Mapped,
    Pair,
    Stuck,
    Sum,
    values,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

WAIT_S = 120  # only ever reached when something is broken


class SumParser(ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.left
        yield struct.right

    def reconstruct(self, original_structure, tensor_iterator):
        return Sum(*tensor_iterator, original_structure.name)


registerCustomArgParser(Sum, SumParser())


@pytest.fixture
def accessor():
    """Makes accessors by fork, which is quick, and ends them."""
    made = []

    def make(dataset, **kwargs):
        made.append(
            AsynchronousDataAccessor(dataset, sharing_strategy=SharingStrategy.Fork, **kwargs)
        )
        return made[-1]

    yield make
    for one in made:
        one.terminate()


def rows(length):
    """Elements with a first dimension: [[0, 0]], [[1, 1]], …"""
    return Mapped(length, lambda i: torch.full((1, 2), float(i)))


def ones(index):
    return torch.full((2,), float(index))


@pytest.mark.parametrize(
    "make",
    [
        ones,
        lambda i: (ones(i), torch.tensor(i)),
        lambda i: [ones(i), torch.tensor([i], dtype=torch.bfloat16)],
        lambda i: Pair(ones(i), torch.tensor([True])),
        lambda i: {"x": ones(i), "y": torch.tensor([i], dtype=torch.int8)},
        lambda i: defaultdict(list, {"x": (ones(i), [ones(-i)])}),
        lambda i: Sum(ones(i), ones(2 * i), "sum"),
        lambda i: (Sum(ones(i), ones(2 * i), "sum"), ones(3 * i)),
        lambda i: torch.zeros(0, 3),
    ],
    ids="tensor tuple list named dict nested object object-in-tuple empty".split(),
)
def test_batches_keep_their_structure(make, accessor):
    """Classes, dtypes, shapes and values come out as the data set made them."""
    loader = accessor(Mapped(3, make))
    n_seen = 0
    for index, batch in enumerate(loader):
        assert_same(batch, make(index))
        n_seen += 1
    assert n_seen == len(loader) == 3


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert got.dtype == expected.dtype
        assert torch.equal(got, expected)
    elif isinstance(expected, Sum):
        assert got.name == expected.name
        assert_same((got.left, got.right), (expected.left, expected.right))
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        assert_same(list(got.values()), list(expected.values()))
    else:
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)


def test_dict_keys_may_change_their_order(accessor):
    """Values follow their keys, not their places."""

    def make(index):
        items = [("x", torch.zeros(1)), ("y", torch.ones(1))]
        return dict(items if index == 0 else reversed(items))

    batches = [(batch["x"].item(), batch["y"].item()) for batch in accessor(Mapped(2, make))]
    assert batches == [(0, 1)] * 2


@pytest.mark.parametrize("buffer_size", [1, 3, 8])
@pytest.mark.parametrize("goes_on", [True, False])
def test_epochs(buffer_size, goes_on, accessor):
    """Every epoch has every element; leaving one early starts the data set again."""
    loader = accessor(rows(5), buffer_size=buffer_size, load_indefinitely=goes_on)
    for _ in range(3):
        assert values(loader) == [0, 1, 2, 3, 4]
    for n_taken in (1, 3, 5):
        iterator = iter(loader)
        assert [int(next(iterator)[0, 0]) for _ in range(n_taken)] == list(range(n_taken))
        assert values(loader) == [0, 1, 2, 3, 4]


def test_an_ended_iterator_stays_ended(accessor):
    """next() after the end keeps raising StopIteration until iter() is called."""
    loader = accessor(rows(2))
    iterator = iter(loader)
    assert values(iterator) == [0, 1]
    assert next(iterator, None) is None
    assert next(iterator, None) is None
    assert int(next(iter(loader))[0, 0]) == 0


def test_batches_are_views_that_are_overwritten(accessor):
    """A batch is valid until the next one; the last stays until another epoch begins."""
    loader = accessor(rows(4), buffer_size=2)
    batches = list(loader)
    assert int(batches[3][0, 0]) == 3
    assert batches[0].data_ptr() == batches[2].data_ptr()


def test_tensors_outlive_the_process(accessor):
    """What was handed out can be read after terminate(), and after the accessor is gone."""
    loader = AsynchronousDataAccessor(rows(2), sharing_strategy=SharingStrategy.Fork)
    batch = next(iter(loader))
    loader.terminate()
    del loader
    assert batch.tolist() == [[0, 0]]


def test_only_one_batch_is_loaded_before_the_first_iteration(accessor):
    """early_preload fills the whole ring; without it only the first batch is there."""
    lazy = accessor(rows(10), buffer_size=5)
    eager = accessor(rows(10), buffer_size=5, early_preload=True)
    wait_until(lambda: sum(eager._worker._data_buffers.indices_mem) == 5)
    assert sum(lazy._worker._data_buffers.indices_mem) == 1
    next(iter(eager))
    assert values(lazy) == list(range(10))


def wait_until(is_true):
    """Poll what another process does; it needs milliseconds."""
    for _ in range(WAIT_S * 100):
        if is_true():
            return
        select.select([], [], [], 0.01)
    pytest.fail("the other process did not do it")


def test_the_next_epoch_is_read_ahead_only_if_asked(accessor, tmp_path):
    """load_indefinitely begins the next epoch at once; without it, only when it is requested."""
    eager, lazy = tmp_path / "eager", tmp_path / "lazy"
    one = accessor(CountedEpochs(eager))
    other = accessor(CountedEpochs(lazy), load_indefinitely=False)
    for loader in (one, other):
        assert len(list(loader)) == 3
    wait_until(lambda: eager.stat().st_size == 2)
    assert lazy.stat().st_size == 1
    next(iter(other))
    assert lazy.stat().st_size == 2


def test_rebatching_joins_and_cuts(accessor):
    """Elements of any length become batches of one size; an incomplete one is dropped."""
    pieces = Mapped(4, lambda i: (torch.full((i + 1,), i), torch.full((i + 1, 2), float(i))))
    loader = accessor(pieces, rebatched_size=3)
    for _ in range(2):
        got = [(x.tolist(), y[:, 0].tolist()) for x, y in loader]
        assert got == [([0, 1, 1], [0, 1, 1]), ([2, 2, 2], [2, 2, 2]), ([3, 3, 3], [3, 3, 3])]


def test_the_last_batch_may_be_shorter(accessor):
    """Dimension 0 may shrink; other changes of shape or structure are errors that name them."""
    sizes = (4, 4, 1)
    loader = accessor(Mapped(3, lambda i: torch.full((sizes[i], 2), i)))
    assert [len(batch) for batch in loader] == [4, 4, 1]
    loader = accessor(Mapped(3, lambda i: torch.zeros(2, i // 2 + 1)))
    with pytest.raises(Error, match=r"expected torch.float32 of shape \[2, 1\] .* got .*\[2, 2\]"):
        list(loader)
    loader = accessor(Mapped(3, lambda i: {"x" if i < 2 else "y": torch.zeros(1)}))
    with pytest.raises(Error, match=r"Missing arguments: x\. Unexpected arguments: y\."):
        list(loader)


TYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float64]


@pytest.mark.parametrize("first", TYPES, ids=str)
def test_types_are_those_of_the_first_batch(first, accessor):
    """Batches of other types are converted when they are written; a loss is an error."""
    types = [first, *(other for other in TYPES if other is not first)]
    small = accessor(Mapped(len(types), lambda i: torch.tensor([0, 1]).to(types[i])))
    result = [batch.clone() for batch in small]
    assert [batch.dtype for batch in result] == [first] * len(types)
    assert all(batch.tolist() == [0, 1] for batch in result)
    # 0.1 changes even as a half, which may be: floats are rounded anyway.
    other = accessor([torch.tensor([0]).to(first), torch.tensor([0.1])])
    if first.is_floating_point:
        assert [batch.item() for batch in other][1] == torch.tensor(0.1).to(first).item()
    else:
        with pytest.raises(Error, match="cannot be converted to that without a loss"):
            list(other)


def test_rebatched_types_are_those_of_the_first_piece(accessor):
    """Pieces of one batch may have different types."""
    types = [torch.float32, torch.int64, torch.float64, torch.int32]
    loader = accessor(Mapped(4, lambda i: torch.full((1, 2), i, dtype=types[i])), rebatched_size=2)
    assert [batch[:, 0].tolist() for batch in loader] == [[0.0, 1.0], [2.0, 3.0]]


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (Failing(ValueError("no such file"), at=0), "ValueError: no such file"),
        ([], "The data set is empty"),
        (["text"], "Data must be a tensor, .* got builtins.str"),
        ([torch.zeros(2).to_sparse()], "Data must be dense tensors"),
    ],
    ids="broken empty text sparse".split(),
)
def test_a_data_set_that_does_not_start(dataset, reason, accessor, capsys):
    """No first batch: an error with the process's traceback, which is logged as well."""
    with pytest.raises(Error, match=f"(?s)worker thread failed to start.*Traceback.*{reason}"):
        accessor(dataset)
    assert "Traceback" in capsys.readouterr().err


def test_too_little_for_a_batch(accessor):
    """A data set without a single full batch fails at once."""
    with pytest.raises(Error, match=r"worker thread failed to start(?s:.*)less than 4 elements"):
        accessor(rows(3), rebatched_size=4)
    with pytest.raises(Error, match="same first dimension: got the shapes"):
        accessor([(torch.zeros(2), torch.zeros(3))], rebatched_size=4)


def test_an_error_later_on_has_its_class_and_traceback(accessor):
    """It is raised where its element would have come; the next epoch works."""
    loader = accessor(Failing(KeyError("lost"), at=2))
    seen = []
    with pytest.raises(KeyError, match=r"(?s)in __iter__.*lost") as caught:
        seen += [batch.item() for batch in loader]
    assert "loader_data_sets.py" in str(caught.value)
    assert values(loader) == [0, 1, 2, 3]


def test_an_error_of_a_class_that_cannot_be_imported(accessor):
    """Its text still arrives."""

    class LocalError(Exception):
        pass

    loader = accessor(Failing(LocalError("odd"), at=1))
    with pytest.raises(Error, match=r"(?s)failed in its own process.*LocalError: odd"):
        list(loader)


def test_a_process_that_dies(accessor):
    """Its exit code is reported instead of waiting for ever."""
    with pytest.raises(Error, match="ended unexpectedly, with exit code 7"):
        list(accessor(Dying()))


def test_terminate_may_be_repeated(accessor):
    """Afterwards there is no process, and iterating says why."""
    loader = accessor(rows(3))
    next(iter(loader))
    loader.terminate()
    assert loader._worker._process.exitcode == 0
    loader.terminate()
    for use in (iter, next):
        with pytest.raises(Error, match="has been terminated"):
            use(loader)


def test_a_data_set_that_hangs_is_ended(accessor):
    """terminate() interrupts a data set in the middle of an element."""
    loader = accessor(Stuck())
    assert next(iter(loader)).item() == 0
    loader.terminate()
    assert loader._worker._process.exitcode == 0


def test_everything_ends_at_exit(accessor):
    """poptorchAtExit ends all processes."""
    processes = [accessor(rows(3))._worker._process for _ in range(2)]
    poptorchAtExit()
    assert [process.exitcode for process in processes] == [0, 0]


@pytest.mark.parametrize("dataset", [Mapped(3, ones), Stuck()], ids=["waiting", "stuck"])
def test_a_killed_parent_leaves_no_process(dataset):
    """The loading process ends when its parent does, however that happened.

    Each process holds the pipe open, so its end is seen only when all of them are gone.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        loader = AsynchronousDataAccessor(dataset, sharing_strategy=SharingStrategy.Fork)
        next(iter(loader))
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(write_end)
    os.waitpid(child, 0)
    ready, _, _ = select.select([read_end], [], [], WAIT_S)
    assert ready, "the loading process outlived its parent"
    assert os.read(read_end, 1) == b""
    os.close(read_end)


def test_a_forked_copy_does_not_end_the_process(accessor):
    """Workers of other loaders inherit the accessor; ending theirs must not end ours."""
    loader = accessor(rows(3))
    child = os.fork()
    if child == 0:
        loader.terminate()
        os._exit(0)
    os.waitpid(child, 0)
    assert values(loader) == [0, 1, 2]


def test_workers_of_a_used_loader_stay_with_it(accessor):
    """A loader whose workers already run can be read by another process at the same time."""
    loader = torch.utils.data.DataLoader(Counting(3), num_workers=1, persistent_workers=True)
    assert values(loader) == [0, 1, 2]
    other = accessor(loader)
    assert values(other) == values(loader) == values(other) == [0, 1, 2]


def test_the_file_of_the_ring_is_gone_at_once(accessor, monkeypatch, tmp_path):
    """Memory that has no name cannot be left behind."""
    monkeypatch.setattr(async_ring, "SHARED_MEMORY_FOLDER", tmp_path)
    loader = accessor(rows(3))
    assert list(tmp_path.iterdir()) == []
    assert values(loader) == [0, 1, 2]


def test_too_little_shared_memory_is_said(accessor, monkeypatch, tmp_path):
    """A full /dev/shm is an error that names the need; nothing is left behind."""

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(async_ring, "SHARED_MEMORY_FOLDER", tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(Error, match=r"needs 256 bytes for 3 batches, .*SharingStrategy.FileSystem"):
        accessor(rows(3))
    assert list(tmp_path.iterdir()) == []


def test_random_numbers_continue_those_of_the_parent(accessor):
    """The order of a shuffled epoch follows the script's seed, and costs the script no number."""

    def shuffled():
        loader = torch.utils.data.DataLoader(Counting(20), shuffle=True)
        return values(accessor(loader))

    torch.manual_seed(5)
    first = shuffled()
    drawn = torch.rand(())
    torch.manual_seed(5)
    assert torch.rand(()) == drawn
    other = shuffled()
    torch.manual_seed(5)
    assert shuffled() == first != other


def test_arguments_are_checked(accessor):
    """Sizes below one and negative times are rejected."""
    for name in ("buffer_size", "rebatched_size"):
        with pytest.raises(Error, match=f"{name} must be a positive integer: got 0"):
            accessor(rows(3), **{name: 0})
    with pytest.raises(Error, match="miss_sleep_time_in_ms must not be negative: got -1"):
        accessor(rows(3), miss_sleep_time_in_ms=-1)


def test_a_data_set_that_cannot_travel():
    """Only a fork can take along what cannot be pickled."""
    with pytest.raises(Error, match=r"cannot be sent to another process .*SharingStrategy.Fork"):
        AsynchronousDataAccessor(rows(3))


SCRIPT = """
import os, signal, sys
import torch
from loader_data_sets import Counting
from tremula.frontends.poptorch.data.async_data import AsynchronousDataAccessor
from tremula.frontends.poptorch.enums import SharingStrategy

if __name__ == "__main__":
    dataset = torch.utils.data.TensorDataset(torch.arange(6).reshape(6, 1))
    for name in sys.argv[1:]:
        loader = AsynchronousDataAccessor(dataset, sharing_strategy=SharingStrategy[name])
        print(name, [int(x) for x, in loader], [int(x) for x, in loader])
    os.kill(loader._worker._process.pid, signal.SIGINT)
    loader = AsynchronousDataAccessor(torch.utils.data.DataLoader(Counting(6), num_workers=1))
    print(len(list(loader)))
"""


@pytest.mark.slow
def test_a_script_ends_with_its_processes(tmp_path):
    """Every way to start works in a script, survives an interrupt quietly, and leaves nothing.

    All processes inherit the script's output, so its end is seen only when all of them are gone.
    """
    names = ("ForkServer", "SharedMemory", "FileSystem")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    path = os.pathsep.join([str(HERE), *sys.path])
    ended = subprocess.run(
        [sys.executable, str(script), *names],
        check=False,
        env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    epoch = list(range(6))
    assert ended.stderr == ""
    assert ended.stdout == "".join(f"{name} {epoch} {epoch}\n" for name in names) + "6\n"
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
