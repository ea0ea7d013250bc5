"""Programs on partitions: devices are held once, come back, and their load is seen."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import tremula as tr
from tests.system.conftest import attached_to, measured
from tremula.base.errors import SystemRuntimeError
from tremula.poplibs import popops

HOLDER = """
import time, tremula as tr
print(tr.DeviceManager().acquire_available_device(2).driver_ids, flush=True)
time.sleep(60)
"""


@pytest.fixture
def on_partition(admin, monkeypatch, tmp_path):
    with attached_to(admin, "p1", monkeypatch, tmp_path, size=4, is_reconfigurable=True) as made:
        yield made


def doubling(device):
    graph, sequence = tr.Graph(device), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [64], "x", mapping="linear")
    popops.add_in_place(graph, x, x, sequence)
    graph.create_host_write("x", x)
    graph.create_host_read("x", x)
    return tr.Engine(graph, [sequence]).load(device)


def test_a_program_runs_on_its_devices(admin, on_partition):
    """It computes as anywhere else; the controller shows who it is, and what it has done."""
    manager = tr.DeviceManager()
    assert manager.system.n_ipus == 4
    device = manager.acquire_available_device(1)
    engine = doubling(device)
    engine.write_tensor("x", np.arange(64))
    for _ in range(3):
        engine.run()
    np.testing.assert_array_equal(engine.read_tensor("x"), 8 * np.arange(64))
    (process,) = admin.get("leases")
    assert (process["pid"], process["ipus"]) == (os.getpid(), [0])
    device.lease.beat()
    shown = measured(admin.metrics())
    assert 0 < shown["ipu_cycles_total", "0"] <= engine.clock.total_cycles
    assert shown["ipu_energy_joules_total", "0"] > 0
    assert shown["ipu_cycles_total", "1"] == 0
    device.detach()
    assert admin.get("leases") == []


@pytest.mark.slow
def test_two_programs_never_hold_one_device(admin, on_partition):
    """What another process holds cannot be attached; what a killed one held can, at once."""
    held = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert held.stdout.readline() == "[0, 1]\n"
    manager = tr.DeviceManager()
    pairs = manager.get_devices(n_ipus=2)
    assert not pairs[0].attach()
    with pytest.raises(SystemRuntimeError, match="hold all 1 devices of 4 IPUs"):
        manager.acquire_available_device(4)
    mine = manager.acquire_available_device(2)
    assert mine.driver_ids == [2, 3]
    held.kill()
    held.wait()
    held.stdout.close()
    assert pairs[0].attach()
    for device in (pairs[0], mine):
        device.detach()


def test_a_silent_program_loses_its_devices(controller, admin, on_partition):
    """After its time is over the controller takes them back, and the program is told."""
    device = tr.DeviceManager().acquire_available_device(4)
    engine = doubling(device)
    lease = device.lease
    with controller.store.change():
        controller.store.run("UPDATE leases SET ends_at = ?", time.time() - 1)
    controller.take_back()
    assert admin.get("leases") == []
    lease.beat()
    with pytest.raises(tr.errors.UnknownRuntimeError, match="took the devices"):
        engine.run()


def test_programs_on_one_device_add_up(admin, on_partition):
    """Two engines on a device: cycles of both are counted, whoever ran last."""
    device = tr.DeviceManager().acquire_available_device(1)
    engines = [doubling(device), doubling(device)]
    for engine in engines:
        engine.run()
    device.lease.beat()
    wanted = sum(engine.clock.total_cycles for engine in engines)
    assert measured(admin.metrics())["ipu_cycles_total", "0"] == wanted
    device.detach()


def test_a_device_must_be_attached_to_load(on_partition):
    """Loading on a partition's device that is not attached says what to do."""
    device = tr.DeviceManager().get_device(0)
    with pytest.raises(SystemRuntimeError, match="is not attached"):
        doubling(device)


def test_the_servers_address_does_as_well(admin, monkeypatch, tmp_path):
    """Without a file, the environment names the controller and the partition; GCDs are apart."""
    admin.post("partitions", name="two", size=4, n_gcds=2)
    monkeypatch.setenv("IPUOF_VIPU_API_PORT", str(admin.port))
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "two")
    monkeypatch.setenv("VIPU_CLI_API_ACCESS_KEY", admin.key)
    held = []
    for gcd in (0, 1):
        monkeypatch.setenv("IPUOF_VIPU_API_GCD_ID", str(gcd))
        manager = tr.DeviceManager()
        assert [d.target.n_ipus for d in manager.get_devices()] == [2]
        held.append(manager.acquire_available_device(2))
    assert [device.lease.ipus for device in held] == [(0, 1), (2, 3)]
    for device in held:
        device.detach()
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "three")
    with pytest.raises(SystemRuntimeError, match="no partition 'three'"):
        tr.DeviceManager()


def test_a_machine_without_a_partition_is_as_before():
    """Nothing is asked, and any device can be attached."""
    device = tr.DeviceManager().acquire_available_device(2)
    assert device.lease is None
    assert device.is_attached
