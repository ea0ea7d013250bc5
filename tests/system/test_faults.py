"""Faults: what programs see, where partitions move, and how they are repaired."""

import numpy as np
import pytest

import tremula as tr
from tests.system.conftest import ADMIN, attached_to
from tests.system.test_attach import doubling
from tremula.base.errors import (
    RecoverableRuntimeError,
    SystemRuntimeError,
    UnrecoverableRuntimeError,
)
from tremula.system.control.errors import ControlError
from tremula.system.control.partitions import PartitionRequest

poptorch = pytest.importorskip("poptorch")
torch = pytest.importorskip("torch")

# What is injected on IPUs 0 to 3, and what the program gets.
CASES = [
    ("parity", 1, None, RecoverableRuntimeError, "IPU_RESET"),
    ("link", 0, 1, RecoverableRuntimeError, "LINK_RESET"),
    ("reset", 2, None, RecoverableRuntimeError, "PARTITION_RESET"),
    ("agent", 0, None, UnrecoverableRuntimeError, None),
]


@pytest.mark.parametrize(("kind", "a", "b", "error", "action"), CASES, ids=[c[0] for c in CASES])
def test_a_program_gets_poplars_error(kind, a, b, error, action, admin, monkeypatch, tmp_path):
    """Each kind of fault raises its class at the next run, with what brings the machine back."""
    with attached_to(admin, "p1", monkeypatch, tmp_path, size=4):
        device = tr.DeviceManager().acquire_available_device(4)
        engine = doubling(device)
        engine.run()
        admin.post("faults", kind=kind, cluster="cl0", a=a, b=b)
        device.lease.beat()
        with pytest.raises(error, match="partition 'p1'") as raised:
            engine.run()
        assert getattr(raised.value, "recovery_action", None) == action
        device.detach()


def test_a_chip_that_is_not_ours_may_break(admin, monkeypatch, tmp_path):
    """Faults of other chips, and of links with one end here, do not touch a program."""
    with attached_to(admin, "p1", monkeypatch, tmp_path, size=4, is_reconfigurable=True):
        device = tr.DeviceManager().acquire_available_device(2)
        engine = doubling(device)
        engine.write_tensor("x", np.arange(64))
        for fault in (("parity", 9, None), ("link", 0, 2), ("agent", 3, None)):
            admin.post("faults", kind=fault[0], cluster="cl0", a=fault[1], b=fault[2])
        device.lease.beat()
        engine.run()
        np.testing.assert_array_equal(engine.read_tensor("x"), 2 * np.arange(64))
        device.detach()


@pytest.mark.slow
def test_poptorch_raises_its_own(admin, monkeypatch, tmp_path):
    """A model attaches to the partition; a fault is a RecoverableError or an UnrecoverableError."""
    with attached_to(admin, "p1", monkeypatch, tmp_path, size=1):
        model = poptorch.inferenceModel(torch.nn.Linear(2, 2))
        x = torch.zeros(1, 2)
        model(x)
        (process,) = admin.get("leases")
        assert process["ipus"] == [0]
        other = poptorch.inferenceModel(torch.nn.Linear(2, 2))
        with pytest.raises(
            poptorch.Error, match=r"poplar_system_runtime_error.*hold all 1 devices"
        ):
            other(x)
        admin.post("faults", kind="parity", cluster="cl0", a=0)
        model._attachment._lease._device.lease.beat()
        with pytest.raises(poptorch.RecoverableError) as raised:
            model(x)
        assert raised.value.recovery_action == "IPU_RESET"
        model.detachFromDevice()
        assert admin.get("leases") == []
        admin.post("partitions/p1/reset")
        model.attachToDevice()
        model(x)
        admin.post("faults", kind="agent", cluster="cl0", a=0)
        model._attachment._lease._device.lease.beat()
        with pytest.raises(poptorch.UnrecoverableError):
            model(x)
        model.detachFromDevice()


def test_popart_attaches(admin, monkeypatch, tmp_path):
    """`acquireAvailableDevice` takes chips of the partition until it is left."""
    popart = pytest.importorskip("popart")
    with attached_to(admin, "p1", monkeypatch, tmp_path, size=2, is_reconfigurable=True):
        with popart.DeviceManager().acquireAvailableDevice(2):
            assert [process["ipus"] for process in admin.get("leases")] == [[0, 1]]
            with pytest.raises(popart.popart_exception, match="hold all 2 devices"):
                popart.DeviceManager().acquireAvailableDevice(1)
        assert admin.get("leases") == []


def test_a_broken_partition_gives_no_devices_until_it_is_reset(admin, monkeypatch, tmp_path):
    """A parity error puts it in error; a reset clears it."""
    with attached_to(admin, "p1", monkeypatch, tmp_path, size=4):
        admin.post("faults", kind="parity", cluster="cl0", a=3)
        assert admin.get("partitions/p1")["state"] == "PS_ERROR"
        with pytest.raises(SystemRuntimeError, match="parity error in the memory of IPU 3"):
            tr.DeviceManager().acquire_available_device(4)
        admin.post("partitions/p1/reset")
        assert admin.get("partitions/p1")["state"] == "PS_ACTIVE"
        tr.DeviceManager().acquire_available_device(4).detach()


def test_links_that_break_are_gone_round(rack):
    """A torus loses its shape and stays usable; a pair whose only link breaks does not."""
    assert rack.add_partition(ADMIN, PartitionRequest("all", 64))["routing"] == "torus"
    fault = rack.add_fault(ADMIN, "link", "cl0", 0, 62)
    assert rack.partition(ADMIN, "all")["routing"] == "mesh"
    inner = rack.add_fault(ADMIN, "link", "cl0", 30, 31)
    shown = rack.partition(ADMIN, "all")
    assert (shown["routing"], shown["state"]) == ("detour", "PS_ACTIVE")
    for broken in (fault, inner):
        rack.clear_fault(ADMIN, broken["id"])
    assert rack.partition(ADMIN, "all")["routing"] == "torus"
    rack.remove_partition(ADMIN, "all")
    rack.add_partition(ADMIN, PartitionRequest("pair", 2))
    rack.add_fault(ADMIN, "link", "cl0", 1, 0)
    shown = rack.partition(ADMIN, "pair")
    assert shown["state"] == "PS_ERROR"
    assert "cannot be joined" in shown["why"]
    rack.remove_partition(ADMIN, "pair")
    assert rack.add_partition(ADMIN, PartitionRequest("other", 2))["first"] == 2


def test_topologies_are_checked_against_the_wires(controller, rack):
    """The ladder of a Pod16 has no torus; a rack has, as a whole; a ring fits any block."""
    for name, size in (("a", 2), ("b", 4), ("c", 8)):
        made = controller.add_partition(ADMIN, PartitionRequest(name, size, topology="ring"))
        assert made["routing"] == "ring"
    with pytest.raises(ControlError, match="cannot be joined as a torus"):
        rack.add_partition(ADMIN, PartitionRequest("t", 16, topology="torus"))
    rack.add_cluster(ADMIN, "two", tr.system("pod128"))
    with pytest.raises(ControlError, match="exceeds an IPU-Link domain"):
        rack.add_partition(ADMIN, PartitionRequest("u", 128, allocation="two"))
    made = rack.add_partition(ADMIN, PartitionRequest("u", 128, allocation="two", n_gcds=2))
    assert [g["ipus"][0] for g in made["gcds"]] == [0, 64]
    assert [(g["name"], g["size"]) for g in made["sync_groups"]] == [
        ("GS1.0", 64), ("GS1.1", 64), ("GS2", 128)
    ]  # fmt: skip


def test_what_is_not_there_cannot_break(controller):
    """A link that joins nothing, or a chip that does not exist, is refused."""
    for fault in (("link", 0, 9), ("parity", 16, None), ("agent", 4, None), ("fire", 0, None)):
        with pytest.raises(ControlError):
            controller.add_fault(ADMIN, fault[0], "cl0", *fault[1:])
