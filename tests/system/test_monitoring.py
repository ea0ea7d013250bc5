"""Alert rules and dashboards, against the metrics that exist and a real Prometheus."""

import json
import re
import shutil
import subprocess
import time
import urllib.request
from importlib.resources import files

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.system.conftest import ADMIN
from tremula.system.control.partitions import PartitionRequest
from tremula.system.web.exporter import scrape
from tremula.system.web.server import listening_socket

FOLDER = files("tremula.system") / "monitoring"
METRIC = re.compile(r"\b(?:ipu|vipu)_[a-z_]+\b")
LABELS = re.compile(r"\b((?:ipu|vipu)_[a-z_]+)\{([^}]*)\}")


def expressions():
    """Every query of the dashboard and the rules."""
    board = json.loads((FOLDER / "fleet.json").read_text(encoding="utf-8"))
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (a["expr"] for a in board["annotations"]["list"])
    yield from (v["definition"] for v in board["templating"]["list"] if v["type"] == "query")
    rules = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    yield from re.findall(r"expr: (.*)", rules)


def test_dashboards_and_rules_ask_for_metrics_that_exist(controller):
    """Each metric of a query is exported, with the labels the query names."""
    controller.add_partition(ADMIN, PartitionRequest("p1", 4))
    about = {"gcd": 0, "pid": 1, "host": "elsewhere", "user": "u", "command": "c"}
    controller.add_lease(ADMIN, {"partition": "p1", "ipus": [0, 1, 2, 3], **about})
    samples = [
        sample
        for family in text_string_to_metric_families(scrape(controller).decode())
        for sample in family.samples
    ]
    labels = {sample.name: set(sample.labels) for sample in samples}
    asked = list(expressions())
    assert len(asked) > 25
    for expression in asked:
        assert set(METRIC.findall(expression)) <= labels.keys(), expression
        for name, selector in LABELS.findall(expression):
            assert set(re.findall(r"(\w+)=", selector)) <= labels[name], expression


def test_the_dashboard_imports_as_it_is():
    """What Grafana needs is there: ids that differ, places that do not overlap, one data source."""
    board = json.loads((FOLDER / "fleet.json").read_text(encoding="utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        g = panel["gridPos"]
        cells = {
            (x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])
        }
        assert not cells & taken
        assert g["x"] + g["w"] <= 24
        taken |= cells
    sources = {p["datasource"]["uid"] for p in panels if "datasource" in p}
    assert sources == {"${datasource}"}
    assert "id" not in board  # or it would replace a dashboard of that number


def need(program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (apt-get install prometheus)")
    return program


def test_promtool_accepts_the_rules():
    """Prometheus' own checker finds nothing wrong with them."""
    done = subprocess.run(
        [need("promtool"), "check", "rules", str(FOLDER / "alerts.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 rules found" in done.stdout


@pytest.fixture
def prometheus(admin, tmp_path):
    """A real Prometheus that scrapes the controller every half second: asks it for a query."""
    need("prometheus")
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    text = (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
    text = text.replace("127.0.0.1:8090", f"127.0.0.1:{admin.port}").replace(": 5s", ": 500ms")
    (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")
    with listening_socket("127.0.0.1", 0) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [
            "prometheus", f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={address}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def ask(path, is_enough, seconds=120):
        until, result = time.monotonic() + seconds, None
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=5) as answer:
                    result = json.load(answer)["data"]
                if is_enough(result):
                    return result
            except OSError:
                pass
            time.sleep(0.2)
        raise AssertionError(f"{path}: {result}")

    yield ask
    process.terminate()
    process.wait(20)


@pytest.mark.slow
def test_a_real_prometheus_scrapes_and_alerts(admin, prometheus):
    """It reads all chips, and fires for a link that breaks, a machine that is gone."""
    result = prometheus("query?query=count(ipu_power_watts)", lambda d: d["result"])
    assert result["result"][0]["value"][1] == "16"
    admin.post("partitions", name="p1", size=2)
    admin.post("faults", kind="link", cluster="cl0", a=0, b=1)
    admin.post("faults", kind="agent", cluster="cl0", a=3)
    wanted = {"IpuLinkDown", "VipuAgentDown", "VipuPartitionError"}

    def names(data):
        return {a["labels"]["alertname"] for a in data["alerts"] if a["state"] == "firing"}

    fired = prometheus("alerts", lambda d: names(d) >= wanted)
    assert names(fired) == wanted
