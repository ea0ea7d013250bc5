"""The Traffic view's packs, and the files the page saves for other tools."""

import json

import numpy as np
import pytest

from tremula.base.errors import MissingProfileData
from tremula.vision.analysis.traffic import step_traffic, total_traffic
from tremula.vision.page_data import traffic
from tremula.vision.page_data.fetch import PageData
from tremula.vision.page_data.pack import unpack_pack


def test_bytes_of_steps_add_up(reader, monkeypatch):
    """Cells, routes and tiles agree with the report's bytes per step; groups of tiles lose none."""
    steps, data = reader.table("steps"), PageData([reader])
    sums = np.zeros(reader.n_tiles, np.int64)
    for step in range(reader.n_steps):
        one = step_traffic(reader, step)
        assert one.n_bytes + one.from_outside.sum() == steps["bytes_in"][step]
        sums += steps["executed"][step] * np.bincount(
            one.pairs.destination, one.pairs.n_bytes, reader.n_tiles
        ).astype(np.int64)
    total = total_traffic(reader)
    facts, columns = unpack_pack(data.pack("0/traffic"))
    assert columns["received"].tolist() == sums.tolist()
    assert facts["n_bytes"] == columns["sent"].sum() == columns["cell_bytes"].sum() == sums.sum()
    assert facts["n_routes"] == len(total.pairs.n_bytes)
    assert columns["route_bytes"][0] == total.pairs.n_bytes.max()
    assert (np.diff(columns["route_bytes"].astype(np.int64)) <= 0).all()
    monkeypatch.setattr(traffic, "MOST_BINS", 5)
    step = traffic.busiest_steps(reader)[0]
    facts, columns = unpack_pack(PageData([reader]).pack(f"0/traffic/{step}"))
    assert facts["n_bins"] <= 5
    assert columns["cell_bytes"].sum() == facts["n_bytes"] > 0
    assert columns["cell_to"].max() < facts["n_bins"]


def test_files_for_other_tools(reader):
    """The page's files are those of the command, with host events; other formats are errors."""
    data = PageData([reader])
    facts, columns = unpack_pack(data.pack("0/trace-file/chrome"))
    assert facts["file_name"].endswith(".json")
    names = {event["name"] for event in json.loads(columns["content"].tobytes())["traceEvents"]}
    assert {"Engine.run", "epoch"} <= names
    _, columns = unpack_pack(data.pack("0/trace-file/perfetto"))
    assert b"Engine.run" in columns["content"].tobytes()
    for name in ("trace-file", "trace-file/zip", "trace-file/chrome/x", "traffic/99999"):
        with pytest.raises(MissingProfileData):
            data.pack(f"0/{name}")
