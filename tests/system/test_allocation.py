"""Partitions, quotas and allocations against a model that knows every chip by name."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.system.conftest import ADMIN
from tests.system.test_placement import best_by_search
from tremula.hardware import system
from tremula.system.control.access import Caller
from tremula.system.control.controller import Controller
from tremula.system.control.errors import ControlError
from tremula.system.control.partitions import PartitionRequest

USERS = {"ann": (None, None), "bob": (6, None), "cid": (None, 2)}  # quotas: IPUs, partitions
NAMES = [f"p{i}" for i in range(6)]


class Partitions(RuleBasedStateMachine):
    """A Pod16 in two allocations; `of` is what every chip belongs to."""

    @initialize()
    def start(self):
        self.controller = Controller(":memory:")
        self.controller.add_cluster(ADMIN, "cl0", system("pod16"))
        for name, quota in USERS.items():
            self.controller.add_user(ADMIN, name, "user", *quota)
        agents = ["cl0-ag03", "cl0-ag04"]
        self.controller.add_allocation(ADMIN, "extra", "cl0", agents, ["ann"])
        self.chips = {"cl0": range(8), "extra": range(8, 16)}
        self.of = [None] * 16
        self.owner = {}
        self.faulty = set()

    @rule(
        name=st.sampled_from(NAMES),
        user=st.sampled_from(sorted(USERS)),
        size=st.sampled_from([1, 2, 3, 4, 8, 16]),
        where=st.sampled_from(["cl0", "extra"]),
    )
    def create(self, name, user, size, where):
        expected = self._expected(name, user, size, where)
        caller, request = Caller(user, "user"), PartitionRequest(name, size, where)
        if expected is None:
            with pytest.raises(ControlError):
                self.controller.add_partition(caller, request)
            return
        made = self.controller.add_partition(caller, request)
        assert made["first"] == expected
        self.of[made["first"] : made["first"] + size] = [name] * size
        self.owner[name] = user

    def _expected(self, name, user, size, where):
        """The first chip of the partition, or None if it must be refused."""
        mine = [n for n, owner in self.owner.items() if owner == user]
        max_ipus, max_partitions = USERS[user]
        n_used = sum(self.of.count(n) for n in mine)
        if (
            name in self.owner
            or size & (size - 1)
            or (where == "extra" and user != "ann")
            or (max_ipus is not None and n_used + size > max_ipus)
            or (max_partitions is not None and len(mine) >= max_partitions)
        ):
            return None
        free = [
            self.of[i] is None and i in self.chips[where] and i not in self.faulty
            for i in range(16)
        ]
        return best_by_search(free, size)

    @rule(name=st.sampled_from(NAMES), user=st.sampled_from(sorted(USERS)))
    def remove(self, name, user):
        if self.owner.get(name) != user:
            with pytest.raises(ControlError):
                self.controller.remove_partition(Caller(user, "user"), name)
            return
        self.controller.remove_partition(Caller(user, "user"), name)
        del self.owner[name]
        self.of = [None if n == name else n for n in self.of]

    @precondition(lambda self: not self.faulty)
    @rule(ipu=st.integers(0, 15))
    def break_chip(self, ipu):
        self.fault = self.controller.add_fault(ADMIN, "parity", "cl0", ipu, None)["id"]
        self.faulty = {ipu}

    @precondition(lambda self: self.faulty)
    @rule()
    def clear_fault_of_chip(self):
        self.controller.clear_fault(ADMIN, self.fault)
        self.faulty = set()

    @invariant()
    def shows_what_is(self):
        if not hasattr(self, "controller"):
            return
        shown = {p["name"]: p for p in self.controller.partitions(ADMIN)}
        assert {n: p["owner"] for n, p in shown.items()} == self.owner
        for name, partition in shown.items():
            ipus = partition["gcds"][0]["ipus"]
            assert ipus == [i for i, n in enumerate(self.of) if n == name]
            is_broken = bool(self.faulty & set(ipus))
            assert partition["state"] == ("PS_ERROR" if is_broken else "PS_ACTIVE")

    def teardown(self):
        if hasattr(self, "controller"):
            self.controller.close()


TestPartitions = Partitions.TestCase
TestPartitions.__doc__ = "Any sequence of requests leaves what the model says."
TestPartitions.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
