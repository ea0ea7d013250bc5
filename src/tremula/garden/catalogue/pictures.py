"""Pictures of cards: any array becomes a PNG of a few kilobytes."""

import numpy as np

from tremula.base.errors import TensorCreationError
from tremula.vision.analysis.curves import png

# A picture is made smaller until it weighs no more: the page holds dozens.
MOST_BYTES = 9_000
_SIDES = (192, 160, 128, 96, 64, 48, 32)
_N_LEVELS = 32  # few enough to deflate well, enough to look smooth
# From low to high: the analyser's scale for heat maps (vision/page/colours.js).
_STOPS = np.array(
    [
        (13, 27, 62), (27, 66, 115), (24, 110, 133), (37, 151, 127), (111, 187, 92), (203, 210, 64),
        (255, 231, 112),
    ],
    float,
)  # fmt: skip


def small_png(picture: np.ndarray) -> bytes:
    """A picture float[h, w], or uint8[h, w, 3], as a PNG of at most MOST_BYTES."""
    result = b""
    for side in _SIDES:
        result = png(np.ascontiguousarray(_coloured(_shrunk(picture, side))))
        if len(result) <= MOST_BYTES:
            break
    return result


def checked_picture(picture: np.ndarray, application: str) -> np.ndarray:
    """The array, if it can be shown as a picture; otherwise an error."""
    is_grey = picture.ndim == 2 and np.issubdtype(picture.dtype, np.floating)
    is_coloured = picture.ndim == 3 and picture.shape[2] == 3 and picture.dtype == np.uint8
    if not (is_grey or is_coloured) or 0 in picture.shape or not np.isfinite(picture).all():
        raise TensorCreationError(
            f"the picture of {application} must be finite float[h, w] or uint8[h, w, 3], "
            f"got {picture.dtype}{list(picture.shape)}."
        )
    return picture


def _shrunk(picture: np.ndarray, most: int) -> np.ndarray:
    """Means of blocks, so that no side exceeds `most`; small pictures stay as they are."""
    step = -(-max(picture.shape[:2]) // most)
    if step == 1:
        return picture
    height, width = (n // step * step or n for n in picture.shape[:2])
    rows, columns = min(step, height), min(step, width)
    blocks = picture[:height, :width].reshape(
        height // rows, rows, width // columns, columns, *picture.shape[2:]
    )
    return blocks.mean(axis=(1, 3))


def _coloured(picture: np.ndarray) -> np.ndarray:
    if picture.ndim == 3:
        return (picture.astype(np.uint8) & 0xF8) | 4  # 32 levels of each colour
    low, high = float(picture.min()), float(picture.max())
    share = (picture - low) / (high - low) if high > low else np.zeros(picture.shape)
    at = np.rint(share * (_N_LEVELS - 1)) / (_N_LEVELS - 1) * (len(_STOPS) - 1)
    colours = [np.interp(at, np.arange(len(_STOPS)), _STOPS[:, i]) for i in range(3)]
    return np.rint(np.stack(colours, axis=-1)).astype(np.uint8)
