"""Partitions of replicas, against brute force and worked values."""

import itertools

import pytest

import popxl


def brute_force(n: int, stride: int, size: int) -> list[int]:
    """Fill groups one after the other from the lowest replica that is left."""
    assignment = [-1] * n
    for group in range(n // size):
        first = assignment.index(-1)
        for k in range(size):
            assignment[first + k * stride] = group
    return assignment


@pytest.mark.parametrize("n", [1, 2, 6, 8, 12, 16])
def test_strided_groups(n):
    """Groups, their transposes and refinements are what filling them one by one gives."""
    ir = popxl.Ir(replication=n)
    for stride, size in itertools.product(range(1, n + 1), repeat=2):
        if n % stride or (size > 1 and n % (stride * size)):
            continue
        grouping = ir.replica_grouping(stride, size)
        expected = brute_force(n, 1 if size == 1 else stride, size)
        assert grouping.assignment == expected
        assert grouping.num_groups == n // size
        transposed = grouping.transpose()
        for group, replicas in enumerate(transposed.members):
            assert group in range(size)
            places = [grouping.members[grouping.assignment[r]].index(r) for r in replicas]
            assert len(set(places)) == 1
        fine = transposed.const_rg
        assert fine.is_const
        assert all(len({transposed.assignment[r] for r in g}) == 1 for g in fine.members)
        assert [transposed.assignment[g[0]] for g in fine.members] == transposed.to_device_map


@pytest.mark.parametrize(
    ("stride", "size", "assignment", "transposed"),
    [
        (1, 2, [0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 0, 1, 0, 1, 0, 1]),
        (2, 4, [0, 1, 0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2, 3, 3]),
        (4, 2, [0, 1, 2, 3, 0, 1, 2, 3], [0, 0, 0, 0, 1, 1, 1, 1]),
        (2, 2, [0, 1, 0, 1, 2, 3, 2, 3], [0, 0, 1, 1, 0, 0, 1, 1]),
    ],
)
def test_worked_values(stride, size, assignment, transposed):
    """Partitions of eight replicas and their transposes, as worked out by hand."""
    grouping = popxl.Ir(replication=8).replica_grouping(stride, size)
    assert grouping.assignment == assignment
    assert grouping.transpose().assignment == transposed


def test_without_a_stride():
    """A partition without a stride is refined by one, and maps values there and back."""
    grouping = popxl.Ir(replication=8).replica_grouping(2, 2).transpose()
    assert not grouping.is_const
    assert grouping.const_rg == popxl.Ir(replication=8).replica_grouping(1, 2)
    assert grouping.to_device_map == [0, 1, 0, 1]
    assert grouping.to_host_map == [0, 1]


def test_groups_of_a_pod():
    """The groups of a model over 256 replicas: 4 × 8 × 8, the last dimension innermost."""
    ir = popxl.Ir(replication=256)
    tp1, tp2, tp_all = (ir.replica_grouping(*g) for g in ((8, 8), (1, 8), (1, 64)))
    dp = tp_all.transpose()
    assert (dp.stride, dp.group_size, dp.num_groups) == (64, 4, 64)
    assert (tp2.transpose().stride, tp2.transpose().group_size) == (8, 32)
    value = tp1.transpose()
    assert not value.is_const
    assert (value.num_groups, value.group_size) == (8, 32)
    assert (value.const_rg.stride, value.const_rg.group_size) == (1, 8)


def test_from_assignments():
    """Groups are numbered by their first member, and recognised if they have a stride."""
    ir = popxl.Ir(replication=4)
    grouping = ir.replica_grouping_from_assignments([7, 3, 7, 3])
    assert grouping.assignment == [0, 1, 0, 1]
    assert grouping == ir.replica_grouping(2, 2)
    assert not ir.replica_grouping_from_assignments([0, 1, 1, 0]).is_const


@pytest.mark.parametrize(
    ("stride", "size", "text"),
    [(0, 1, "Stride must be"), (3, 1, "factor"), (1, 9, "Group size"), (8, 2, "do not divide")],
)
def test_impossible_groups(stride, size, text):
    """Strides and sizes that do not fit the replicas are refused."""
    with pytest.raises(ValueError, match=text):
        popxl.Ir(replication=8).replica_grouping(stride, size)


def test_unequal_groups():
    """Groups of different sizes, or of another number of replicas, are refused."""
    ir = popxl.Ir(replication=4)
    with pytest.raises(ValueError, match="same number of replicas"):
        ir.replica_grouping_from_assignments([0, 0, 0, 1])
    with pytest.raises(ValueError, match="must match the number of"):
        ir.replica_grouping_from_assignments([0, 1])
