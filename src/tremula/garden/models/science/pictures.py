"""Pictures of fields, float[h, w], for the sciences' pages: blue is low, red is high."""

from base64 import b64encode

import numpy as np

from tremula.vision.analysis.curves import png

# From the least to the greatest value.
_STOPS = np.array(
    [(33, 60, 120), (110, 160, 205), (245, 245, 240), (225, 130, 90), (140, 30, 35)], float
)


def field_svg(values: np.ndarray, n_pixels: int = 3) -> str:
    """The text of an SVG picture that holds the field; each cell is n_pixels wide and high."""
    height, width = (n_pixels * n for n in values.shape)
    data = b64encode(png(coloured(values))).decode("ascii")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">\n'
        f'<image width="{width}" height="{height}" href="data:image/png;base64,{data}"/>\n</svg>\n'
    )


def coloured(values: np.ndarray) -> np.ndarray:
    """uint8[h, w, 3]: colours between the stops; 64 levels, so that the picture deflates well."""
    low, high = float(values.min()), float(values.max())
    share = np.round((values - low) / (high - low if high > low else 1.0) * 63) / 63
    place = share * (len(_STOPS) - 1)
    below = np.minimum(place.astype(int), len(_STOPS) - 2)
    rest = (place - below)[..., None]
    return (_STOPS[below] * (1 - rest) + _STOPS[below + 1] * rest).round().astype(np.uint8)
