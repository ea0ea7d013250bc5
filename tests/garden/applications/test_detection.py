"""Parts of the detection: boxes that overlap, cells that know, the score."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tremula as tr
from tremula.garden.applications.detection_nms.main import f1_score
from tremula.garden.applications.detection_nms.scenes import (
    STRIDE,
    cell_centres,
    scenes,
    targets_of,
)
from tremula.garden.applications.detection_nms.suppression import suppressed, suppression

CHOICE = {"overlap": 0.4, "least": 0.3, "most": 5}


def random_boxes(seed, n_images=3, n_boxes=12):
    draw = torch.Generator().manual_seed(seed)
    corners = 10 * torch.rand(n_images, n_boxes, 2, generator=draw)
    sizes = 1 + 5 * torch.rand(n_images, n_boxes, 2, generator=draw)
    return torch.cat([corners, corners + sizes], 2), torch.rand(n_images, n_boxes, generator=draw)


def plainly_suppressed(boxes, scores, overlap, least, most):
    """One image, one box after another, as the rule is told."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    kept = []
    for i in order:
        if scores[i] > least and all(shared_part(boxes[i], boxes[k]) <= overlap for k in kept):
            kept.append(i)
    return (kept + [-1] * most)[:most]


def shared_part(one, other):
    wide = max(0.0, min(one[2], other[2]) - max(one[0], other[0]))
    high = max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return wide * high / (areas - wide * high)


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_overlaps_are_suppressed_as_told(seed):
    """All images at once keep the boxes that a plain loop keeps for each."""
    boxes, scores = random_boxes(seed)
    expected = [
        plainly_suppressed(b, s, **CHOICE)
        for b, s in zip(boxes.double().tolist(), scores.tolist(), strict=True)
    ]
    assert suppressed(boxes, scores, **CHOICE).tolist() == expected


def test_tiles_suppress_the_same_boxes():
    """The vertex of each image keeps what the host keeps, also where boxes are few."""
    boxes, scores = random_boxes(1, n_images=4)
    scores[1] = 0.1  # nothing to keep
    scores[2, 1:] = 0.0  # one box
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=2).create_device())
    given = {"boxes": boxes, "scores": scores}
    tensors = {n: graph.add_variable(tr.FLOAT, list(v.shape), n, mapping="linear")
               for n, v in given.items()}  # fmt: skip
    for name, tensor in tensors.items():
        graph.create_host_write(name, tensor)
    kept, execute = suppression(graph, *tensors.values(), **CHOICE)
    graph.create_host_read("kept", kept)
    engine = tr.Engine(graph, execute).load()
    for name, values in given.items():
        engine.write_tensor(name, values.numpy())
    engine.run()
    result = engine.read_tensor("kept")
    assert result.tolist() == suppressed(boxes, scores, **CHOICE).tolist()
    assert result[1].tolist() == [-1] * 5


def test_cells_that_know_everything_find_everything():
    """Boxes made from the targets of the cells find each object once: F1 is 1, without them 0."""
    truth = scenes(6, seed=3)
    targets = targets_of(truth)
    centres, sides = cell_centres(), STRIDE * targets.sides
    boxes = torch.cat([centres - sides[..., :2], centres + sides[..., 2:]], 2)
    kept = suppressed(boxes, targets.is_object, overlap=0.4, least=0.5, most=6)
    at = kept.clamp(min=0).long()
    best = boxes.gather(1, at.unsqueeze(2).expand(-1, -1, 4))
    scores, kinds = (kept >= 0).float(), targets.kinds.gather(1, at)
    assert f1_score(best, scores, kinds, truth) == 1.0
    assert f1_score(best, torch.zeros_like(scores), kinds, truth) == 0.0
