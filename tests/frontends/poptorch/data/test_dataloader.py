"""poptorch.DataLoader: combined batches, partitioning, samplers, modes."""

import pickle
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.utils.data import BatchSampler, Sampler, SequentialSampler

from tremula.frontends.poptorch.data.async_data import AsynchronousDataAccessor
from tremula.frontends.poptorch.data.dataloader import DataLoader
from tremula.frontends.poptorch.enums import DataLoaderMode, SharingStrategy
from tremula.frontends.poptorch.exceptions import Error
from tremula.frontends.poptorch.options.options import Options

# Another process imports the data sets by name: their folder must be on its path.
sys.path.insert(0, str(Path(__file__).parent))
from loader_data_sets import (
    Counting,
    CountingForever,
    CountingWithLength,
    split_among_workers,
    values,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

FORK = {"sharing_strategy": SharingStrategy.Fork}
ASYNC_MODES = (DataLoaderMode.Async, DataLoaderMode.AsyncRebatched)


def options(device_iterations=1, process_id=0, n_processes=1, seed=None):
    opts = Options().deviceIterations(device_iterations)
    if seed is not None:
        opts.randomSeed(seed)
    if n_processes > 1:
        opts.Distributed.configureProcessId(process_id, n_processes)
    return opts


def test_it_is_a_loader_of_torch():
    """Code that asks for torch's DataLoader accepts ours."""
    loader = DataLoader(Options(), Counting(3))
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert loader.combinedBatchSize == 1


def test_the_combined_batch():
    """Iterations × (replicas ÷ group) × accumulation micro-batches come at once."""
    opts = Options().deviceIterations(2).replicationFactor(4)
    opts.inputReplicaGrouping(2, opts.input_cgt)
    opts.Training.gradientAccumulation(3)
    loader = DataLoader(opts, Counting(100), batch_size=2)
    assert loader.combinedBatchSize == 2 * 2 * (4 // 2) * 3
    assert len(loader) == 100 // 24
    assert [len(batch) for batch in loader] == [24] * 4
    assert loader.options is opts


def test_options_are_frozen():
    """A loader has read its options: later changes are rejected."""
    opts = Options()
    DataLoader(opts, Counting(1))
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.deviceIterations(2)


def test_options_must_be_options():
    """Forgetting the first argument is an error that says so."""
    with pytest.raises(Error, match=r"Invalid type: 'options' is of type .*Counting"):
        DataLoader(Counting(1), 4)


def test_incomplete_batches_are_dropped_unless_asked_for(capsys):
    """drop_last is True by default; with False the short batch comes, after a warning."""
    assert values(DataLoader(Options(), Counting(7), batch_size=3)) == list(range(6))
    assert capsys.readouterr().err == ""
    loader = DataLoader(Options(), Counting(7), batch_size=3, drop_last=False)
    assert "drop_last=False: the last of the combined batches of 3 elements has only 1" in (
        capsys.readouterr().err
    )
    assert len(loader) == 3
    assert values(loader) == list(range(7))


def test_a_data_set_smaller_than_a_combined_batch(capsys):
    """A loader that will give nothing says why."""
    loader = DataLoader(options(device_iterations=5), Counting(8), batch_size=2)
    assert len(loader) == 0
    assert "8 elements, fewer than one combined batch of 10" in capsys.readouterr().err


@pytest.mark.parametrize("n_elements", [100, 96, 11])
@pytest.mark.parametrize(("n_processes", "n_iterations"), [(2, 1), (3, 4)])
def test_processes_get_contiguous_parts(n_elements, n_processes, n_iterations):
    """Every process gets floor(N / (combined × P)) combined batches, in order."""
    seen = []
    for process_id in range(n_processes):
        opts = options(n_iterations, process_id, n_processes)
        loader = DataLoader(opts, Counting(n_elements), batch_size=2)
        combined = 2 * n_iterations
        assert len(loader) == n_elements // (combined * n_processes)
        seen += values(loader)
    assert seen == list(range(combined * n_processes * (n_elements // (combined * n_processes))))


def test_without_dropping_the_remainder_is_spread_one_by_one():
    """drop_last=False: all elements are used, and parts differ by one at most."""
    parts = [
        values(DataLoader(options(1, i, 3), Counting(11), batch_size=2, drop_last=False))
        for i in range(3)
    ]
    assert [len(part) for part in parts] == [4, 4, 3]
    assert [*parts[0], *parts[1], *parts[2]] == list(range(11))


@pytest.mark.parametrize("mode", [DataLoaderMode.Sync, DataLoaderMode.Async])
def test_one_permutation_for_all_processes(mode):
    """Shuffled parts are disjoint, differ between epochs, and two epochs see every element."""
    epochs = [[], [], [], []]
    for process_id in range(3):
        opts = options(1, process_id, 3, 42)
        loader = DataLoader(opts, Counting(100), 4, True, mode=mode, async_options=FORK)
        assert len(loader) == 100 // 12
        for parts in epochs:
            parts.append(values(loader))
            assert len(parts[-1]) == 32
        loader.terminate()
    for parts in epochs:
        assert len(set().union(*parts)) == 96
    assert len({tuple(sorted(parts[0])) for parts in epochs}) == 4
    assert set().union(*epochs[0], *epochs[1]) == set(range(100))
    assert set().union(*epochs[2], *epochs[3]) == set(range(100))


def test_shuffling_in_processes_needs_a_seed():
    """Without a common seed the parts would overlap: rejected."""
    with pytest.raises(AssertionError, match="randomSeed"):
        DataLoader(options(1, 0, 2), Counting(8), shuffle=True)


def test_iterable_data_sets_are_not_partitioned():
    """A stream cannot be cut: the user must do it, or switch the partitioning off."""
    opts = options(1, 1, 2)
    with pytest.raises(AssertionError, match="not supported for an IterableDataset"):
        DataLoader(opts, CountingForever(8))
    loader = DataLoader(opts, CountingForever(3), auto_distributed_partitioning=False)
    assert values(loader) == [0, 1, 2]


def test_a_sampler_of_the_user_is_respected():
    """With a sampler given, it alone says what a process loads."""
    assert values(DataLoader(options(1, 1, 2), Counting(9), sampler=[5, 3])) == [5, 3]


def test_workers_repeat_an_iterable_data_set(capsys):
    """Several workers without worker_init_fn: a warning, and every element as often."""
    loader = DataLoader(Options(), CountingForever(3), num_workers=2)
    assert "Each of the 2 workers iterates over the whole" in capsys.readouterr().err
    assert loader.persistent_workers
    assert sorted(values(loader)) == [0, 0, 1, 1, 2, 2]
    loader.terminate()
    assert loader._iterator is None


def test_workers_persist_only_where_there_are_any():
    """persistent_workers follows num_workers, and can be set."""
    assert not DataLoader(Options(), Counting(1)).persistent_workers
    loader = DataLoader(Options(), Counting(1), num_workers=1, persistent_workers=False)
    assert not loader.persistent_workers


def test_no_batching():
    """batch_size=None hands elements on as they are."""
    loader = DataLoader(options(4), Counting(3), batch_size=None)
    assert [batch.shape for batch in loader] == [torch.Size([2])] * 3
    assert loader.combinedBatchSize is None


@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_of_a_sampler_are_joined(drop_last):
    """Consecutive sampler batches become one; drop_last is about incomplete combinations."""
    sampler = BatchSampler(SequentialSampler(range(10)), 2, drop_last=False)
    loader = DataLoader(options(2), Counting(10), batch_sampler=sampler, drop_last=drop_last)
    batches = [batch.clone() for batch in loader]
    assert [len(batch) for batch in batches] == [4, 4] + ([] if drop_last else [2])
    assert values(batches) == list(range(8 if drop_last else 10))
    assert len(loader) == len(batches)
    assert loader.combinedBatchSize == 4


def pad_to_three(elements):
    rows = torch.stack(elements)
    return {"x": torch.cat([rows, torch.full((3 - len(rows), 2), -1.0)])}


def test_each_batch_of_a_sampler_is_collated_alone():
    """collate_fn sees one sampler batch, so it can pad it; a sampler needs no length."""

    def sampler():
        yield [0]
        yield [1, 2]
        yield [3, 4, 5]

    loader = DataLoader(
        options(2), Counting(6), batch_sampler=sampler(), drop_last=False, collate_fn=pad_to_three
    )
    assert [values([batch["x"]]) for batch in loader] == [[0, -1, -1, 1, 2, -1], [3, 4, 5]]


def test_a_batch_sampler_excludes_other_choices():
    """batch_size, shuffle and sampler contradict it; so does partitioning."""
    sampler = BatchSampler(SequentialSampler(range(4)), 2, drop_last=False)
    for other in ({"batch_size": 2}, {"shuffle": True}, {"sampler": [0]}):
        with pytest.raises(Error, match="batch_sampler already says"):
            DataLoader(Options(), Counting(4), batch_sampler=sampler, **other)
    with pytest.raises(Error, match="rebatched_worker_size"):
        DataLoader(
            Options(),
            Counting(4),
            batch_sampler=sampler,
            mode=ASYNC_MODES[1],
            rebatched_worker_size=1,
        )
    with pytest.raises(Error, match="auto_distributed_partitioning does not work"):
        DataLoader(options(1, 0, 2), Counting(4), batch_sampler=sampler)


def test_a_pickled_loader_loads_the_same():
    """A loader can travel to another process, with its options."""
    loader = DataLoader(options(2), Counting(9), batch_size=2)
    copied = pickle.loads(pickle.dumps(loader))
    assert values(copied) == values(loader) == list(range(8))
    assert copied.combinedBatchSize == 4


@pytest.mark.parametrize("mode", ASYNC_MODES)
@pytest.mark.parametrize("kind", [Counting, CountingWithLength])
@pytest.mark.parametrize("drop_last", [True, False])
def test_asynchronous_modes_load_what_the_others_do(mode, kind, drop_last):
    """Both modes give the same batches and length as Sync, in every epoch."""
    arguments = {"batch_size": 2, "drop_last": drop_last}
    expected = DataLoader(options(2), kind(11), **arguments)
    loader = DataLoader(options(2), kind(11), **arguments, mode=mode, async_options=FORK)
    assert len(loader) == len(expected) == (2 if drop_last else 3)
    for _ in range(2):
        sizes = []
        for batch, same in zip(loader, expected, strict=True):
            assert torch.equal(batch, same)
            sizes.append(len(batch))
        assert sizes == [4, 4] if drop_last else [4, 4, 3]
    loader.terminate()


@pytest.mark.parametrize(("mode", "n_expected"), [(ASYNC_MODES[0], 12), (ASYNC_MODES[1], 20)])
def test_rebatching_loses_less_than_one_batch(mode, n_expected):
    """Three workers with 7 elements each lose 3 each, or, rebatched, one in all."""
    loader = DataLoader(
        options(),
        CountingWithLength(21),
        batch_size=4,
        num_workers=3,
        worker_init_fn=split_among_workers,
        mode=mode,
        async_options=FORK,
    )
    n_seen = len(set(values(loader)))
    loader.terminate()
    assert n_seen == n_expected
    assert len(loader) == 5


def test_workers_of_a_rebatched_loader_may_load_several_elements():
    """rebatched_worker_size changes who joins elements, not the result; it has a limit."""
    arguments = {"batch_size": 4, "mode": DataLoaderMode.AsyncRebatched, "async_options": FORK}
    loader = DataLoader(options(), Counting(11), rebatched_worker_size=3, **arguments)
    assert values(loader) == list(range(8))
    loader.terminate()
    with pytest.raises(AssertionError, match="between 1 and the combined batch size 4: got 5"):
        DataLoader(options(), Counting(11), rebatched_worker_size=5, **arguments)
    arguments["batch_size"] = None
    with pytest.raises(Error, match="AsyncRebatched needs a batch_size"):
        DataLoader(options(), Counting(11), **arguments)


class Sizes(Sampler):
    """A batch sampler of batches of given sizes; it may or may not say what size they have."""

    def __init__(self, sizes, batch_size=None):
        self.sizes = sizes
        if batch_size is not None:
            self.batch_size = batch_size

    def __len__(self):
        return len(self.sizes)

    def __iter__(self):
        ends = torch.tensor(self.sizes).cumsum(0).tolist()
        return iter([list(range(end - n, end)) for n, end in zip(self.sizes, ends, strict=True)])


def of_torch(drop_last):
    return BatchSampler(SequentialSampler(range(9)), 2, drop_last=drop_last)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ASYNC_MODES)
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize(
    "sampler",
    [of_torch(True), of_torch(False), Sizes([2] * 5, 2), Sizes([2] * 5), Sizes([3, 2, 2, 1, 1])],
    ids="full short sized unsized varied".split(),
)
def test_an_asynchronous_batch_sampler(mode, drop_last, sampler):
    """Batches of a sampler are joined in the loading process as they are here, in every epoch."""
    arguments = {"batch_sampler": sampler, "drop_last": drop_last}
    expected = DataLoader(options(2), Counting(11), **arguments)
    loader = DataLoader(options(2), Counting(11), **arguments, mode=mode, async_options=FORK)
    assert len(loader) == len(expected)
    for _ in range(2):
        pairs = zip(loader, expected, strict=True)
        sizes = [len(batch) for batch, same in pairs if torch.equal(batch, same)]
        assert len(sizes) == len(expected)
    loader.terminate()


@pytest.mark.parametrize("drop_last", [True, False])
def test_rebatching_makes_full_batches_of_any_sampler(drop_last):
    """In mode AsyncRebatched batches are cut and joined to the size that the sampler states."""
    sampler = Sizes([1, 3, 2, 2, 1, 1, 1], batch_size=2)
    loader = DataLoader(
        options(2),
        Counting(11),
        batch_sampler=sampler,
        drop_last=drop_last,
        mode=DataLoaderMode.AsyncRebatched,
        async_options=FORK,
    )
    batches = [batch.clone() for batch in loader]
    loader.terminate()
    assert [len(batch) for batch in batches] == [4, 4] + ([] if drop_last else [3])
    assert values(batches) == list(range(8 if drop_last else 11))


TOO_FEW = [
    ({"batch_size": 2}, Counting, "8 elements, fewer than one combined batch of 10"),
    ({"batch_sampler": Sizes([2] * 4)}, Counting, "4 batches, fewer than one combined batch of 5"),
    ({"batch_size": 2}, CountingForever, "no elements, or fewer than the 10 of one combined batch"),
]


@pytest.mark.parametrize("mode", [DataLoaderMode.Sync, *ASYNC_MODES])
@pytest.mark.parametrize(("arguments", "kind", "text"), TOO_FEW)
def test_too_few_samples_are_explained(arguments, kind, text, mode, capsys):
    """A loader whose data is less than one combined batch says so, in every mode."""
    make = partial(DataLoader, options(5), kind(8), **arguments, mode=mode, async_options=FORK)
    if mode is DataLoaderMode.Sync:
        assert list(make()) == []
        assert kind is CountingForever or text in capsys.readouterr().err
    else:
        with pytest.raises(Error, match=text):
            make()


def test_async_options_are_checked():
    """A misspelt option suggests the nearest; in mode Sync the options are not used."""
    arguments = {"async_options": {"buffer_sise": 2}}
    with pytest.raises(Error, match="async_options has no 'buffer_sise': did you mean 'buffer_s"):
        DataLoader(Options(), Counting(3), mode=DataLoaderMode.Async, **arguments)
    assert values(DataLoader(Options(), Counting(2), **arguments)) == [0, 1]


def test_an_asynchronous_loader_is_not_wrapped_again():
    """Wrapping an asynchronous loader in an accessor is an error."""
    loader = DataLoader(Options(), Counting(3), mode=DataLoaderMode.Async, async_options=FORK)
    with pytest.raises(Error, match="already asynchronous"):
        AsynchronousDataAccessor(loader)
    loader.terminate()


def test_a_dropped_loader_ends_its_process():
    """Without terminate(), the process ends with the last reference to the loader."""
    loader = DataLoader(Options(), Counting(3), mode=DataLoaderMode.Async, async_options=FORK)
    process = loader._accessor._worker._process
    iterator = iter(loader)
    next(iterator)
    del loader
    assert process.is_alive()
    del iterator
    assert process.exitcode == 0


def test_a_stream_has_no_length():
    """len() of a loader of an iterable without a length is Python's own error."""
    loader = DataLoader(
        Options(),
        CountingForever(3),
        batch_size=None,
        mode=DataLoaderMode.Async,
        async_options=FORK,
    )
    with pytest.raises(TypeError, match=r"'CountingForever' has no len\(\)"):
        len(loader)
    loader.terminate()
