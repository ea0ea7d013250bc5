"""Trees of things by dotted names."""

import pytest

from popxl_addons import DotTree


def test_names_find_leaves():
    """Dots make trees, numbers are found by index, also from the end."""
    tree = DotTree.from_dict({"layer.weight": 1, "layer.bias": 2})
    tree.insert(0, "first")
    tree.insert(1, "second")
    assert tree.layer.weight == tree["layer"]["weight"] == tree.get("layer.weight") == 1
    assert tree[0] == "first"
    assert tree[-1] == "second"
    assert "layer.bias" in tree
    assert "layer.gamma" not in tree
    assert tree.to_dict() == {"layer.weight": 1, "layer.bias": 2, "0": "first", "1": "second"}


def test_packing_sorts_by_name():
    """Names and leaves come sorted, and make the same tree again."""
    tree = DotTree.from_dict({"b": 2, "a.x": 1})
    names, leaves = tree.unpack()
    assert (names, leaves) == (["a.x", "b"], [1, 2])
    assert DotTree.pack(names, leaves).to_dict() == {"a.x": 1, "b": 2}


def test_trees_are_copied_mapped_and_filtered():
    """Copies do not share trees; common names map leaves to leaves."""
    tree = DotTree.from_dict({"a.x": 1, "a.y": 2})
    other = tree.copy()
    other.insert("a.z", 3, overwrite=True)
    assert tree.len_flat() == 2
    assert tree.map(lambda leaf: leaf * 10).a.y == 20
    assert other.filter_keys(["a.z"]).to_dict() == {"a.z": 3}
    assert tree.to_mapping(DotTree.from_dict({"a.y": "why", "b": 0})) == {2: "why"}
    assert other.pop("a").z == 3
    assert other.keys() == []


def test_what_trees_refuse():
    """Names that exist, names that are none, and names that do not exist, with the nearest."""
    tree = DotTree(weight=1)
    with pytest.raises(ValueError, match="already exists"):
        tree.insert("weight", 2)
    tree.insert("weight", 2, overwrite=True)
    assert tree.weight == 2
    with pytest.raises(ValueError, match="identifier"):
        tree.insert("a b", 1)
    with pytest.raises(ValueError, match="negative"):
        tree.insert(-1, 1)
    with pytest.raises(AttributeError, match="did you mean 'weight'"):
        _ = tree.wieght
    with pytest.raises(KeyError, match="numbered"):
        _ = tree[-1]
