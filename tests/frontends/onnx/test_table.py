"""The table of operators and the page made from it."""

from pathlib import Path

import onnx
import pytest
from onnx import defs

from tremula.frontends.onnx.functions import schema_attributes
from tremula.frontends.onnx.graph import OnnxNode
from tremula.frontends.onnx.operator_page import onnx_markdown
from tremula.frontends.onnx.table import NEWEST, all_operators, find_operator, operator

PAGE = Path(__file__).resolve().parents[3] / "docs" / "onnx.md"


@pytest.mark.skipif(onnx.__version__ != "1.23.2", reason="the page is that of another onnx")
def test_the_page_is_current():
    """docs/onnx.md is what the table says."""
    assert PAGE.read_text(encoding="utf-8") == onnx_markdown(), "run `make docs`"


def test_entries_know_the_attributes_of_their_versions():
    """No attribute that ONNX defines is silently ignored: each is known to the entry."""
    missing = []
    for entry in all_operators():
        if entry.domain == "ai.graphcore":
            continue
        for version in {entry.since, min(entry.until, _newest(entry.domain))}:
            node = OnnxNode(entry.domain, entry.name, "", (), (), {}, {}, version, entry)
            unknown = schema_attributes(node) - entry.attributes - ALLOWED
            missing += [f"{entry.name} {version}: {name}" for name in sorted(unknown)]
    assert missing == []


# Of the first operator sets: how memory was shared, and attributes that nothing ever used. Others
# are rejected by name when a node has them.
ALLOWED = {"consumed_inputs", "base_values_as_tensor", "nodes_values_as_tensor"}
ALLOWED |= {"nodes_hitrates_as_tensor", "target_weights_as_tensor", "class_weights_as_tensor"}


def _newest(domain):
    return {"": defs.onnx_opset_version(), "ai.onnx.ml": 5}.get(domain, 1)


def test_versions_choose_entries():
    """A model gets the entry of the operator set it imports."""
    assert find_operator("", "Softmax", 12) is not find_operator("", "Softmax", 13)
    assert find_operator("", "Gelu", 19) is None
    newest = find_operator("", "Softmax", 28)
    assert newest is not None
    assert newest.until == NEWEST


def test_two_entries_for_one_version_are_rejected():
    """Which function computes an operator is never a matter of order."""
    with pytest.raises(ValueError, match="Relu has two entries"):
        operator("Relu", since=14)(lambda x: x)
