"""Parts of the applications on pictures: patches, shapes by name, masks."""

import pytest
import torch

from tremula.garden.applications.diffusion_shapes.main import nearest_shape, shapes
from tremula.garden.applications.diffusion_shapes.model import signal_share
from tremula.garden.applications.mae_digits.model import images_of, patches_of
from tremula.garden.applications.unet_segmentation.overlap import overlap_of


def test_patches_go_back_to_images():
    """Patches lie row by row, and images come back from them."""
    images = torch.arange(2 * 28 * 28.0).view(2, 1, 28, 28)
    patches = patches_of(images)
    assert patches.shape == (2, 16, 49)
    assert torch.equal(patches[0, 1], images[0, 0, :7, 7:14].flatten())
    assert torch.equal(images_of(patches), images)


def test_shapes_are_known_by_their_looks():
    """New pictures of shapes are nearest to those of the same name; noise grows with the level."""
    pictures, names = shapes(40, seed=5)
    assert (nearest_shape(pictures) == names).float().mean() > 0.95
    kept = signal_share()
    assert (kept.diff() < 0).all()
    assert kept[0] > 0.99
    assert kept[-1] < 0.01


@pytest.mark.parametrize(("shift", "overlap"), [(0, 1.0), (2, 1 / 3), (4, 0.0)])
def test_overlap_of_masks(shift, overlap):
    """Pixels in both masks, of those in either."""
    mask = torch.zeros(4, 12, dtype=torch.bool)
    mask[:, :4] = True
    moved = torch.roll(mask, shift, 1)
    assert overlap_of(moved.numpy(), mask.numpy()) == pytest.approx(overlap)
