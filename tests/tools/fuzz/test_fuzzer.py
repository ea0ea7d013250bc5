"""The fuzzer itself: cases are reproducible, differences are seen, shrunk, logged and replayed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.sources import ROOT
from tools.fuzz import corpus, page, run_log
from tools.fuzz.case import (
    FAILED,
    ILLEGAL,
    PASSED,
    SET_ASIDE,
    CheckFailure,
    IllegalCase,
    SetAside,
    examine,
    plain,
    random_of,
)
from tools.fuzz.kinds import HOMES, kind_named
from tools.fuzz.run_log import Batch
from tools.fuzz.shrink import shrink
from tools.fuzz.workers import run_batch, run_batches


class Numbers:
    """A kind for tests: a tree of numbers, wrong where a 7 is beside a number above 2."""

    name = "numbers"

    def generate(self, random):
        return {"rows": [[random.randint(0, 9) for _ in range(4)] for _ in range(20)], "extra": 5}

    def check(self, case):
        if not case["rows"]:
            raise IllegalCase("rows")
        if case["extra"] == 1:
            raise SetAside("decides nothing")
        for row in case["rows"]:
            if 7 in row and max([0, *(n for n in row if n != 7)]) > 2:
                raise CheckFailure("wrong values")

    def features(self, case):
        return {"rows:many"}


def test_a_failure_becomes_small():
    """Of a case that fails, only what makes it fail is left, with the smallest numbers."""
    case = {"rows": [[1, 2, 3, 4], [7, 0, 9, 9], [5, 5, 5, 5]], "extra": 5}
    small = shrink(Numbers(), case, "wrong values")
    assert len(small["rows"]) == 1
    assert sorted(small["rows"][0]) == [3, 7]
    assert case["rows"][0] == [1, 2, 3, 4], "the case itself is unchanged"


@pytest.mark.parametrize(
    ("change", "status"),
    [({}, PASSED), ({"rows": []}, ILLEGAL), ({"extra": 1}, SET_ASIDE), ({"rows": [[7, 9]]}, FAILED),
     ({"rows": 3}, FAILED)],
)  # fmt: skip
def test_every_outcome_has_a_name(change, status):
    """Rules, doubt, oracles and unexpected exceptions are different outcomes."""
    assert examine(Numbers(), {"rows": [[1]], "extra": 0, **change}).status == status


@pytest.mark.slow
@pytest.mark.parametrize("name", HOMES)
def test_a_seed_makes_one_case(name):
    """A seed gives the same plain JSON each time, and other seeds give other cases."""
    kind = kind_named(name)
    first, again, other = (kind.generate(random_of(name, seed)) for seed in (3, 3, 4))
    assert first == again == plain(first)
    assert first != other
    assert all(":" in feature for feature in kind.features(first))


def test_a_wrong_reference_is_noticed(monkeypatch):
    """If the meaning of an operation were wrong, cases would fail, and shrink to that operation."""
    from tools.fuzz.tiles import reference
    from tools.fuzz.tiles.operations import ELEMENT_RULES

    wrong = replace(ELEMENT_RULES["sub"], numpy=np.add)
    monkeypatch.setitem(reference.ELEMENT_RULES, "sub", wrong)
    kind = kind_named("tiles")
    case = {
        "chips": 1, "tiles": 2, "replicas": 1, "strict": False, "functions": [], "sets": [],
        "checks": [], "runs": [0], "variables": [
            {"type": "INT", "shape": [3], "map": [[0, 3, 1, tile]], "values": [[4, 5, 6]]}
            for tile in (0, 1)
        ],
        "programs": [{"do": "sequence", "steps": [
            {"do": "sync", "kind": "INTERNAL"},
            {"do": "operate", "op": "sub", "form": "new", "to": _view(0),
             "ins": [_view(1), _view(1)]},
        ]}],
    }  # fmt: skip
    outcome = examine(kind, case)
    assert (outcome.status, outcome.signature) == (FAILED, "wrong values")
    small = shrink(kind, case, outcome.signature, seconds=3)
    assert "sync" not in json.dumps(small)


def _view(variable):
    return {"parts": [{"var": variable, "ops": []}], "ops": []}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"), [("models", 5), ("models", 12), ("onnx", 3), ("calls", 4)]
)
def test_cases_pass(name, seed):
    """A case of each kind that compares numbers agrees with its reference."""
    kind = kind_named(name)
    outcome = examine(kind, kind.generate(random_of(name, seed)))
    assert outcome.status == PASSED, outcome.detail


# -- logs ------------------------------------------------------------------------------------------


def test_a_run_goes_on_behind_its_log(tmp_path):
    """The next seed is behind all logged ones, in the log or in the summary; a cut line is left."""
    log, summary = tmp_path / "log.jsonl", tmp_path / "summary.json"
    assert run_log.next_seed("tiles", log, summary) == 0
    run_log.append(Batch("tiles", "abc", 0, 50, 1.0, 2.0, {"passed": 50}), log)
    run_log.append(Batch("tiles", "abc", 50, 10, 1.0, 2.0, {"passed": 9, "failed": 1}), log)
    log.write_text(log.read_text() + '{"kind": "tiles", "com')
    assert run_log.next_seed("tiles", log, summary) == 60
    assert run_log.next_seed("models", log, summary) == 0
    for _ in range(2):  # the same log again adds nothing
        run_log.summarise([log], summary)
    (run,) = run_log.read_summary(summary)["runs"]
    assert (run["n"], run["seeds"], run["outcomes"]) == (60, [[0, 59]], {"passed": 59, "failed": 1})
    assert run_log.next_seed("tiles", tmp_path / "none", summary) == 60


def test_batches_are_counted():
    """A batch knows its outcomes, its time and what it covered."""
    batch = Batch("tiles", "abc", 0, 2)
    assert run_batch(batch) == []
    assert batch.outcomes == {"passed": 2}
    assert batch.cpu_s > 0
    assert batch.covered["type:INT"] == 2


@pytest.mark.slow
def test_processes_share_the_work():
    """Batches run in other processes, and come back complete."""
    done = []
    batches = iter([Batch("tiles", "abc", 0, 1), Batch("tiles", "abc", 1, 1)])
    run_batches(batches, 1, lambda batch, failures: done.append((batch, failures)))
    assert [(batch.first_seed, batch.outcomes) for batch, _ in done] == [
        (0, {"passed": 1}), (1, {"passed": 1}),
    ]  # fmt: skip


def test_the_page_has_the_figures_of_the_summary():
    """docs/fuzzing.md says what `tools/fuzz/summary.json` says: `tremula fuzz summarise`."""
    text = (ROOT / "docs" / "fuzzing.md").read_text(encoding="utf-8")
    assert page.page_text(text, run_log.read_summary()) == text


# -- the corpus ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "case"),
    [pytest.param(kind, case, id=path.stem) for path, kind, case in corpus.read_cases()],
)
def test_what_failed_once_passes(kind, case):
    """Every case of the corpus agrees with its oracles."""
    outcome = examine(kind_named(kind), case)
    assert outcome.status in (PASSED, SET_ASIDE), f"{outcome.signature}\n{outcome.detail}"


def test_a_failure_becomes_a_file(tmp_path):
    """A corpus file holds the case itself; equal cases are one file."""
    outcome = examine(Numbers(), {"rows": [[7, 9]], "extra": 0})
    for _ in range(2):
        corpus.write_case("numbers", {"rows": [[7, 9]]}, outcome, {"seed": 1}, tmp_path)
    ((_, kind, case),) = corpus.read_cases(tmp_path)
    assert (kind, case) == ("numbers", {"rows": [[7, 9]]})
