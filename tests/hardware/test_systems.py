"""Systems: the known figures, links, routes and loads, and their errors."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.base.errors import InvalidMachineModel, PoplarError
from tremula.hardware import (
    CHIPS,
    SYSTEMS,
    Traffic,
    chip,
    load_system,
    save_system,
    single,
    system,
)
from tremula.hardware.constant_records import quantities


@pytest.mark.parametrize(
    ("name", "n_ipus", "n_machines", "n_hosts", "chip_name", "topology"),
    [
        ("c600-card", 1, 1, 1, "C600", "direct"),
        ("dss8440", 16, 8, 1, "GC2", "ladder"),
        ("ipu-m2000", 4, 1, 1, "GC200", "direct"),
        ("bow-2000", 4, 1, 1, "Bow", "direct"),
        ("pod4", 4, 1, 1, "Bow", "direct"),
        ("pod16", 16, 4, 1, "Bow", "ladder"),
        ("pod64", 64, 16, 1, "Bow", "torus"),
        ("pod128", 128, 32, 2, "Bow", "torus"),
        ("pod256", 256, 64, 4, "Bow", "torus"),
    ],
)
def test_known_systems(name, n_ipus, n_machines, n_hosts, chip_name, topology):
    """Each system has its published chips, machines and hosts, and a source for every constant."""
    s = system(name)
    assert (s.n_ipus, s.n_machines, s.n_hosts) == (n_ipus, n_machines, n_hosts)
    assert (s.chip.name, s.topology) == (chip_name, topology)
    assert s.n_tiles == n_ipus * s.chip.n_tiles
    assert list(s.facts) == list(quantities(type(s)))
    assert all(f.value == getattr(s, key) and len(f.source) > 3 for key, f in s.facts.items())


def test_lookup():
    """A system is found in any case, is made of other chips on request, and has a nearest name."""
    assert system("POD16") == SYSTEMS["pod16"]
    assert system("m2000").name == "IPU-M2000"
    assert (system("pod16").name, system("pod16", chip="gc200").name) == ("Bow Pod16", "IPU-POD16")
    mine = chip("bow").replace(name="Mine", n_tiles=8)
    assert system("pod64", chip=mine).name == "Pod64 of Mine"
    assert system(system("pod4"), chip=mine).n_tiles == 32
    with pytest.raises(InvalidMachineModel) as error:
        system("pod65")
    assert str(error.value).startswith("unknown system 'pod65'.\n  try: did you mean 'pod6")


def test_dram_and_hosts_add_up():
    """Totals are those of all machines; a card has no DRAM."""
    assert system("pod256").n_bytes_dram == 4096 * 2**30
    assert system("pod16").host_gbytes_per_s == 50.0
    assert (system("dss8440").n_bytes_dram, system("dss8440").n_gateways) == (0, 0)
    assert (system("pod64").n_gateways, system("pod128").n_racks) == (16, 2)


def test_measured_rates_of_the_dss8440():
    """The ladder has the rates measured on it: 55.0 GB/s on a card and 27.7 between cards."""
    s = system("dss8440")
    on_card, between = (s.links.gbytes_per_s[s.link_path(0, i)[0]] for i in (1, 2))
    assert [on_card, between] == pytest.approx([55.0, 27.7], rel=0.01)
    assert [len(s.link_path(0, i)) for i in (0, 1, 2, 3, 15)] == [0, 1, 1, 2, 8]


def test_a_machine_is_joined_directly():
    """In a machine every chip reaches every other over one link, and uses at most ten."""
    s = system("bow-2000")
    assert all(len(s.link_path(a, b)) == 1 for a in range(4) for b in range(4) if a != b)
    for name in SYSTEMS:
        links = system(name).links
        n_used = np.bincount(links.source, links.n_lanes * (links.kind == 0), minlength=1)
        assert n_used.max(initial=0) <= system(name).chip.n_ipu_links


def test_racks_are_joined_by_gateways():
    """Between racks traffic goes chip, gateway, gateway, chip, at the same height if it can."""
    s = system("pod128")
    kinds = s.links.kind[list(s.link_path(5, 64 + 5))].tolist()
    assert kinds == [1, 2, 1]
    assert s.links.gbytes_per_s[s.link_path(5, 69)[1]] == 25.0
    assert set(s.links.kind[list(s.link_path(0, 63))].tolist()) == {0}


def fewest_hops(s, start):
    """Hops from a chip to every node, by breadth-first search in plain Python."""
    hops, queue = {start: 0}, deque([start])
    while queue:
        node = queue.popleft()
        for link in np.flatnonzero(s.links.source == node):
            target = int(s.links.target[link])
            if target not in hops:
                hops[target] = hops[node] + 1
                queue.append(target)
    return hops


@settings(max_examples=20, deadline=None)
@given(
    n_ipus=st.integers(1, 140),
    name=st.sampled_from(sorted(CHIPS)),
    seed=st.integers(0, 2**32 - 1),
)
def test_ways_are_unbroken_and_shortest(n_ipus, name, seed):
    """In a system of any size a way starts, goes on and ends where it should, by fewest hops.

    Between racks it may take more: it changes racks at the height of its goal.
    """
    s = single(name, n_ipus)
    a, b = np.random.default_rng(seed).integers(0, n_ipus, 2).tolist()
    node = a
    path = s.link_path(a, b)
    for link in path:
        assert s.links.source[link] == node
        node = s.links.target[link]
    assert node == b
    if s.n_racks == 1:
        assert len(path) == fewest_hops(s, a)[b]


@pytest.mark.parametrize("name", ["bow", "gc2", "c600"])
def test_all_ways_of_small_systems(name):
    """Of up to 11 chips, odd numbers too, every chip reaches every other by fewest hops."""
    for n in range(2, 12):
        s = single(name, n)
        for a in range(n):
            hops = fewest_hops(s, a)
            for b in range(n):
                path = list(s.link_path(a, b))
                assert s.links.target[path].tolist()[-1:] == [b] * (a != b)
                assert s.links.source[path[1:]].tolist() == s.links.target[path[:-1]].tolist()
                assert len(path) == hops[b]


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(["dss8440", "pod4", "pod16", "pod64", "pod128"]),
    seed=st.integers(0, 2**32 - 1),
    n_pairs=st.integers(0, 60),
)
def test_loads_are_the_sum_of_the_ways(name, seed, n_pairs):
    """Bytes and seconds of all traffic equal those found by following each way by itself."""
    s, rng = system(name), np.random.default_rng(seed)
    traffic = np.zeros((s.n_ipus, s.n_ipus), np.int64)
    ends = rng.integers(0, s.n_ipus, (2, n_pairs))
    traffic[ends[0], ends[1]] = rng.integers(1, 10**9, n_pairs)
    expected, latency_s = np.zeros(len(s.links), np.int64), 0.0
    for a, b in np.argwhere(traffic).tolist():
        path = list(s.link_path(a, b))
        expected[path] += traffic[a, b]
        latency_s = max(latency_s, float(s.links.latency_s[path].sum()))
    loads = s.link_loads(traffic)
    assert (loads.n_bytes == expected).all()
    seconds = expected / s.links.gbytes_per_s / 1e9
    assert loads.seconds == pytest.approx(seconds.max(initial=0.0) + latency_s)
    assert (loads.busiest_link == -1) == (not expected.any())
    if n_pairs and expected.any():
        assert seconds[loads.busiest_link] == pytest.approx(seconds.max())


def test_tiles_take_turns_in_sending_to_other_chips():
    """Many small messages take as long as their ways, a hundred or so at a time."""
    s = system("dss8440")
    one = np.ones(1, np.int64)
    loads = s.loads_of(Traffic(0 * one, 3 * one, 4864 * one, 1216 * one))
    route_s = s.across_latency_s + s.chip.ipu_link_latency_s
    expected = 1216 * route_s / s.chip.n_sends_in_flight
    assert loads.turn_seconds[0] == pytest.approx(expected)
    assert loads.seconds == pytest.approx(expected + route_s)


def test_what_stays_on_its_chip_uses_no_link():
    """Traffic of a chip with itself takes no time."""
    one = np.ones(1, np.int64)
    loads = system("pod4").loads_of(Traffic(one, one, 1000 * one, one))
    assert (loads.seconds, loads.busiest_link) == (0.0, -1)


def test_the_busiest_link_has_a_name():
    """The bottleneck of a system of 10,000 chips is named by the chips or gateways it joins."""
    s = single("bow", 10_000)
    chips = np.arange(s.n_ipus)
    sends = np.zeros_like(chips)
    loads = s.loads_of(Traffic(chips, (chips + 64) % s.n_ipus, sends + 1000, sends))
    assert s.link_name(loads.busiest_link).startswith("GW-Link gateway ")
    assert s.link_name(0) == "IPU-Link chip 0 → chip 1 (55 GB/s)"


def test_load_spreads_over_equal_ways():
    """All-to-all traffic round a torus is even: the busiest rail has little more than its share."""
    s = system("pod64")
    loads = s.link_loads(np.ones((64, 64), np.int64))
    rails = loads.n_bytes[(s.links.source - s.links.target) % 2 == 0]
    assert rails.max() <= 1.35 * rails.mean()


@pytest.mark.parametrize(
    "traffic",
    [np.zeros((3, 4), np.int64), np.zeros((4, 4)), np.full((4, 4), -1), np.zeros(16, np.int64)],
)
def test_bad_traffic(traffic):
    """Traffic of the wrong shape, type or sign is refused."""
    with pytest.raises(InvalidMachineModel) as error:
        system("pod4").link_loads(traffic)
    assert "traffic on 'Bow Pod4' must be bytes from chip to chip" in str(error.value)
    assert "row a, column b holds the bytes that chip a sends to chip b" in str(error.value)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: system("pod16", chip="c600"), "needs 10 IPU-Links on a chip, but 'C600' has 4."),
        (lambda: system("pod4").link_path(0, 4), "'Bow Pod4' has no IPU 4: it has 4."),
        (
            lambda: system("pod4").replace(n_ipus=8),
            "8 chips in 1 machines of 4, expected 2 machines.",
        ),
        (lambda: system("pod16").replace(topology="direct"), "topology 'direct' but 4 machines."),
        (
            lambda: system("pod16").replace(topology="ring"),
            "expected one of 'direct', 'ladder', 't",
        ),
        (
            lambda: system("pod128").replace(n_gateways_per_machine=0),
            "2 racks and no gateway links",
        ),
        (lambda: system("pod16").replace(n_ipu=4), "System 'Bow Pod16' has no constant 'n_ipu'."),
        (
            lambda: system("pod4").replace(n_ipus=3, n_ipus_per_machine=3),
            "3 chips in a machine, expected 1 or an even number.",
        ),
        (lambda: single("bow", 0), "n_ipus must be a whole number from 1 to 65,536; got 0."),
        (lambda: single("bow", 2.0), "n_ipus must be a whole number from 1 to 65,536; got 2.0."),
    ],
)
def test_impossible_systems(make, text):
    """Each impossible system is refused with what was expected and what was got."""
    with pytest.raises(InvalidMachineModel) as error:
        make()
    assert text in str(error.value)
    assert "\n  try: " in str(error.value)


def test_replace():
    """A changed system says what it was changed from, and changes its links."""
    s = system("pod16").replace(topology="torus")
    assert (s.name, s.facts["topology"].source) == ("Bow Pod16*", "changed from Bow Pod16")
    assert len(s.link_path(0, 14)) == 1
    assert system("pod16").replace() == system("pod16")


def test_a_chip_with_few_links_shares_them_out():
    """An ad-hoc system of a chip with few links uses those it has."""
    s = single(chip("bow").replace(n_ipu_links=3), 6)
    assert (s.n_links_across, s.n_links_along, s.n_links_diagonal) == (1, 1, 0)


def test_systems_as_files(tmp_path):
    """A system is the same when read back; a file of changes follows its base, machines too."""
    for s in (system("pod16"), single("gc2", 6)):
        save_system(s, tmp_path / "saved.toml")
        again = load_system(tmp_path / "saved.toml")
        assert (again, again.facts, again.chip.facts) == (s, s.facts, s.chip.facts)
    mine = tmp_path / "hall.toml"
    mine.write_text('base = "pod256"\nn_ipus = 10000\nchip = { base = "gc200", n_tiles = 8 }\n')
    hall = load_system(mine)
    assert (hall.name, hall.n_machines, hall.n_racks, hall.n_tiles) == ("hall", 2500, 157, 80_000)
    assert len(hall.link_path(3, 9_999)) > 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n_ipu = 4", "hall.toml: unknown key 'n_ipu'."),
        ('base = "pod17"', "unknown system 'pod17'."),
        ("chip = 3", "chip must be a name or a table, got 3."),
        ('base = "pod16"\nn_ipus = 0', "n_ipus of 'hall' is 0"),
        ("n_ipus = 4", "System 'hall' lacks"),
        ("n_ipus == 4", "is no TOML"),
    ],
)
def test_bad_system_files(tmp_path, text, said):
    """What is wrong with a system's file is said with its name."""
    (tmp_path / "hall.toml").write_text(text)
    with pytest.raises(PoplarError) as error:
        load_system(tmp_path / "hall.toml")
    assert said in str(error.value)
