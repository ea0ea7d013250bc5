"""A detector: what each cell of a grid says about the object it is in, and its loss."""

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch
from tremula.garden.applications.detection_nms.scenes import KINDS, STRIDE, cell_centres
from tremula.garden.applications.detection_nms.suppression import suppress_overlaps


class Detector(nn.Module):
    """Convolutions down to the grid; per cell four sides, whether there is an object, and kinds."""

    centres: Tensor

    def __init__(self, width: int):
        super().__init__()
        n_out = 4 + 1 + len(KINDS)
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, padding=1), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, padding=1), nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(2 * width, n_out, 3, padding=1),
        )  # fmt: skip
        self.register_buffer("centres", cell_centres())

    def cells(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sides in cells [n, 64, 4], evidence of an object [n, 64], of kinds [n, 64, 2]."""
        raw = self.layers(images).flatten(2).transpose(1, 2)
        return functional.softplus(raw[..., :4]), raw[..., 4], raw[..., 5:]

    def forward(self, images: Tensor, is_object: Tensor, sides: Tensor, kinds: Tensor) -> Tensor:
        """The loss: every cell says whether it is in an object, those inside also what it is."""
        found_sides, evidence, found_kinds = self.cells(images)
        n_inside = is_object.sum().clamp(min=1.0)
        seen = functional.binary_cross_entropy_with_logits(evidence, is_object, reduction="sum")
        off = ((found_sides - sides).abs().mean(2) * is_object).sum()
        wrong = functional.cross_entropy(
            found_kinds.flatten(0, 1), kinds.flatten(), reduction="none"
        )
        wrong = (wrong * is_object.flatten()).sum()
        return poptorch.identity_loss((seen + off + wrong) / n_inside, reduction="none")


class Found(nn.Module):
    """The detector with the suppression behind it: boxes, scores and kinds of the best few."""

    def __init__(self, detector: Detector, most: int):
        super().__init__()
        self.detector, self.most = detector, most

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sides, evidence, kinds = self.detector.cells(images)
        scores, centres = evidence.sigmoid(), self.detector.centres
        sides = sides * STRIDE
        boxes = torch.cat([centres - sides[..., :2], centres + sides[..., 2:]], 2)
        selected = suppress_overlaps(boxes, scores, overlap=0.4, least=0.5, most=self.most)
        at = selected.clamp(min=0).long()
        best = boxes.gather(1, at.unsqueeze(2).expand(-1, -1, 4))
        kind = kinds.argmax(2).gather(1, at)
        return best, torch.where(selected >= 0, scores.gather(1, at), 0.0), kind
