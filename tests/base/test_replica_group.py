"""Groups of replicas against a brute-force partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tremula.base.errors import GraphReplicationError
from tremula.base.replica_group import ReplicaGroup

groups = st.builds(ReplicaGroup, st.integers(1, 6), st.integers(1, 6))


def _partition(group, n):
    """Groups filled one after another from the lowest replica that is left."""
    left, result = list(range(n)), []
    while left:
        members = [left[0] + k * group.stride for k in range(group.size)]
        result.append(members)
        left = [replica for replica in left if replica not in members]
    return result


@given(group=groups, n_blocks=st.integers(1, 4))
def test_members_and_numbers(group, n_blocks):
    """Groups, members and their numbers are those of filling groups from the lowest replica."""
    n = group.size * group.stride * n_blocks
    expected = _partition(group, n)
    assert group.divides(n)
    assert group.n_groups(n) == len(expected)
    assert [list(group.members(g)) for g in range(len(expected))] == expected
    for number, members in enumerate(expected):
        assert [group.group_of(r) for r in members] == [number] * group.size
        assert [group.member_of(r) for r in members] == list(range(group.size))


@given(group=groups, n_blocks=st.integers(1, 4))
def test_values_of_groups(group, n_blocks):
    """Each replica's slice of the groups' values, joined again, is those values."""
    n = group.size * group.stride * n_blocks
    values = [f"value {g}" for g in range(group.n_groups(n))]
    of_replicas = [group.slice_of(values, r) for r in range(n)]
    assert group.joined(of_replicas) == values


@given(group=groups, n_blocks=st.integers(1, 4))
def test_groups_of_an_assignment(group, n_blocks):
    """Groups are recognised by their numbers, and are the coarsest within themselves."""
    n = group.size * group.stride * n_blocks
    numbers = group.assignment(n)
    is_single = group.size == 1  # any stride gives the same groups
    expected = ReplicaGroup(1) if is_single else group
    assert ReplicaGroup.of_assignment(numbers) == expected
    assert ReplicaGroup.coarsest_within(numbers) == expected


def test_groups_without_a_stride():
    """Members that are not equally far apart: no group; the coarsest within them are pairs."""
    numbers = [0, 0, 1, 1, 1, 1, 0, 0]
    assert ReplicaGroup.of_assignment(numbers) is None
    assert ReplicaGroup.coarsest_within(numbers) == ReplicaGroup(2)


def test_groups_of_a_size():
    """Neighbours or orthogonal groups; an error when they do not cover all replicas."""
    assert ReplicaGroup.of_size(2, 8) == ReplicaGroup(2, 1)
    assert ReplicaGroup.of_size(2, 8, is_orthogonal=True) == ReplicaGroup(2, 4)
    with pytest.raises(GraphReplicationError, match=r"3 replicas is not a factor .* \(8\)"):
        ReplicaGroup.of_size(3, 8)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 12])
def test_orthogonal_groups(size):
    """Members of an orthogonal group have equal remainders by the number of groups."""
    group = ReplicaGroup.orthogonal(size, 12)
    assert [group.group_of(r) for r in range(12)] == [r % (12 // size) for r in range(12)]


@pytest.mark.parametrize(("size", "stride"), [(0, 1), (1, 0), (-1, 1), (5, 1), (4, 2), (2, 12)])
def test_groups_that_do_not_cover_all(size, stride):
    """Sizes and strides that are not positive, or do not divide twelve replicas."""
    assert not ReplicaGroup(size, stride).divides(12)
