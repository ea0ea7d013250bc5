"""What Prometheus reads is what the columns hold, and what faults and programs leave."""

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.system.conftest import ADMIN, measured
from tremula.hardware import chip
from tremula.system.control.partitions import PartitionRequest
from tremula.system.control.telemetry import CELSIUS_PER_WATT, INLET_CELSIUS, ChipColumns, Telemetry
from tremula.system.web.exporter import scrape


def test_every_line_can_be_read_and_is_right(controller):
    """Each chip has every metric; values and labels are those of the controller."""
    controller.add_partition(ADMIN, PartitionRequest("p1", 4))
    columns = controller.columns("cl0")
    columns.watts[:] = np.arange(16)
    columns.counters["cycles"][5] = 2**40
    families = list(text_string_to_metric_families(scrape(controller).decode()))
    by_name = {family.name: family.samples for family in families}
    of_chips = {n: s for n, s in by_name.items() if s and "ipu" in s[0].labels}
    assert len(of_chips) == 14
    assert all(len(samples) % 16 == 0 for samples in of_chips.values())
    assert [s.value for s in by_name["ipu_power_watts"]] == list(range(16))
    parts = [s.labels["partition"] for s in by_name["ipu_power_watts"]]
    assert parts == ["p1"] * 4 + [""] * 12
    assert by_name["ipu_cycles"][5].value == 2**40
    states = {s.labels["state"]: s.value for s in by_name["vipu_partition_state"]}
    assert states == {"PS_ACTIVE": 1, "PS_ERROR": 0}


def test_faults_are_counted(controller):
    """A link down counts at both ends, a parity error at its chip, an agent gone as down."""
    for fault in (("link", 4, 6), ("parity", 9, None), ("agent", 3, None)):
        controller.add_fault(ADMIN, fault[0], "cl0", *fault[1:])
    text = scrape(controller).decode()
    shown = measured(text)
    errors = [shown["ipu_link_correctable_errors_total", str(i)] for i in range(16)]
    assert [i for i, n in enumerate(errors) if n] == [4, 6]
    assert shown["ipu_parity_errors_total", "9"] == 1
    assert 'vipu_agent_up{cluster="cl0",ipum="cl0-ag04"} 0.0' in text
    assert 'vipu_faults{kind="agent"} 1.0' in text


def test_power_is_the_programs_while_it_runs():
    """Half busy with a program of 305 W on a chip that idles at its own: the mean of the two."""
    bow = chip("bow")
    columns, telemetry = ChipColumns(bow, 2), Telemetry()
    begin = columns.at
    telemetry.attached("a", now=begin)
    counters = {"busy_s": 1.0, "joules": 2 * 305.0, "modelled_s": 1.0, "cycles": 7.0}
    telemetry.record_beat(columns, "a", [0, 1], counters, now=begin + 2)
    assert columns.utilisation.tolist() == [0.5, 0.5]
    assert columns.watts[0] == pytest.approx((305 + bow.idle_watts) / 2)
    assert columns.counters["joules"].tolist() == [305.0, 305.0]
    assert columns.counters["cycles"].tolist() == [7.0, 7.0]
    telemetry.record_beat(columns, "a", [0, 1], counters, now=begin + 4)
    assert columns.utilisation.tolist() == [0.0, 0.0]
    assert columns.session.tolist() == [0.25, 0.25]


def test_heat_follows_power():
    """A die warms towards its goal, a third of the way in a fifth of a minute, and gets there."""
    columns = ChipColumns(chip("bow"), 1)
    before = float(columns.die_celsius[0])
    begin = columns.at
    columns.watts[:] = 300.0
    goal = INLET_CELSIUS + CELSIUS_PER_WATT * 300
    columns.warm(begin + 8.1)
    assert columns.die_celsius[0] == pytest.approx(before + (goal - before) / 3, abs=0.1)
    columns.warm(begin + 1000)
    assert columns.die_celsius[0] == pytest.approx(goal)
