"""Trains a detector on generated scenes, and tests it with the suppression of boxes on the chip."""

import numpy as np
import torch
from torch import Tensor

import poptorch
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.detection_nms.model import Detector, Found
from tremula.garden.applications.detection_nms.scenes import (
    N_CELLS,
    SIZE,
    Scenes,
    scenes,
    targets_of,
)

N_BATCH, N_TEST = 32, 32
MOST = 6  # boxes that leave the chip


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_scenes, n_epochs, width = (1024, 12, 12) if settings.tiny else (8000, 30, 16)
    known = scenes(n_scenes, seed=1)
    targets = targets_of(known)
    detector = Detector(width)
    optimizer = poptorch.optim.Adam(detector.parameters(), lr=1e-2)
    training = poptorch.trainingModel(detector, poptorch.Options(), optimizer)
    losses = []
    for epoch in range(n_epochs):
        for rows in torch.randperm(n_scenes).split(N_BATCH):
            parts = (known.images, targets.is_object, targets.sides, targets.kinds)
            losses.append(float(training(*(part[rows] for part in parts))))
        if epoch % 4 == 3:
            settings.show(f"  epoch {epoch + 1}: loss {losses[-1]:.3f}")
    training.detachFromDevice()
    test = scenes(N_TEST, seed=2)
    model = poptorch.inferenceModel(Found(detector, MOST))
    boxes, scores, kinds = model(test.images)
    f1 = f1_score(boxes, scores, kinds, test)
    n_sent, n_cells = sum(x[0].numel() for x in (boxes, scores, kinds)), N_CELLS**2 * 7
    settings.show(
        f"F1 {f1:.2f} on {N_TEST} scenes; {n_sent} numbers sent for {n_cells} of the grid"
    )
    return Findings(
        results={"f1_at_half_overlap": f1, "bytes_saved": n_cells / n_sent},
        modelled=modelled_poptorch(model, settings, n_items=N_TEST, unit="images/s"),
        curves={"loss": losses},
        picture=drawn(test.images[0, 0], boxes[0], scores[0]),
    )


def f1_score(boxes: Tensor, scores: Tensor, kinds: Tensor, truth: Scenes) -> float:
    """Each object is found at most once: by a box of its kind that shares half of the union."""
    n_hits = 0
    for i in range(len(boxes)):
        is_free = (truth.kinds[i] >= 0).clone()
        for box, kind in zip(boxes[i][scores[i] > 0], kinds[i][scores[i] > 0], strict=True):
            low = torch.maximum(box[:2], truth.boxes[i, :, :2])
            high = torch.minimum(box[2:], truth.boxes[i, :, 2:])
            shared = (high - low).clamp(min=0).prod(1)
            areas = (truth.boxes[i, :, 2:] - truth.boxes[i, :, :2]).prod(1)
            union = (box[2:] - box[:2]).prod() + areas - shared
            fits = (shared > 0.5 * union) & is_free & (truth.kinds[i] == kind)
            if fits.any():
                is_free[int(fits.nonzero()[0])] = False
                n_hits += 1
    n_said, n_true = int((scores > 0).sum()), int((truth.kinds >= 0).sum())
    return 2 * n_hits / max(n_said + n_true, 1)


def drawn(image: Tensor, boxes: Tensor, scores: Tensor) -> np.ndarray:
    """The image with white frames."""
    picture = np.clip(image.numpy() / 4 + 0.2, 0, 0.7)
    for box in boxes[scores > 0]:
        x0, y0, x1, y1 = (int(v.clamp(0, SIZE - 1)) for v in box)
        picture[[y0, y1], x0 : x1 + 1] = 1.0
        picture[y0 : y1 + 1, [x0, x1]] = 1.0
    return picture
