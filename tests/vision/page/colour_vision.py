"""Colours as eyes without one kind of cone see them, in grey, and how far apart two of them are.

Two simulations of dichromats: Machado, Oliveira and Fernandes 2009 (severity 1), and Viénot,
Brettel and Mollon 1999, whose kind of projection is used for tritanopes, too. Differences are
CIEDE2000 (Sharma, Wu and Dalal 2005); grey is CIE lightness.
"""

import numpy as np

KINDS = ("protanopia", "deuteranopia", "tritanopia")
MACHADO = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
_TO_LMS = np.array(
    [[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]]
)
_LOST = {
    "protanopia": [[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]],
    "deuteranopia": [[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]],
    "tritanopia": [[1, 0, 0], [0, 1, 0], [-0.395913, 0.801109, 0]],
}
VIENOT = {
    kind: np.linalg.inv(_TO_LMS) @ np.array(matrix, float) @ _TO_LMS
    for kind, matrix in _LOST.items()
}
_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
     [0.0193339, 0.1191920, 0.9503041]]
)  # fmt: skip
_WHITE = _TO_XYZ.sum(axis=1)


def linear(colours: list[str]) -> np.ndarray:
    """float[n, 3] of #rrggbb, without the screen's gamma."""
    parts = [[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours]
    values = np.array(parts, float)
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def views(rgb: np.ndarray) -> dict[str, np.ndarray]:
    """Lab of linear colours as everybody sees them: plain, and each kind in both simulations."""
    result = {"plain": lab(rgb)}
    for name, matrices in (("Machado", MACHADO), ("Viénot", VIENOT)):
        for kind in KINDS:
            seen = np.clip(rgb @ np.array(matrices[kind]).T, 0, 1)
            result[f"{kind} ({name})"] = lab(seen)
    return result


def lab(rgb: np.ndarray) -> np.ndarray:
    ratio = rgb @ _TO_XYZ.T / _WHITE
    bent = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = bent[..., 0], bent[..., 1], bent[..., 2]
    return np.stack((116 * y - 16, 500 * (x - y), 200 * (y - z)), axis=-1)


def ciede2000(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The difference of Lab colours, element by element."""
    chroma = np.hypot(one[..., 1], one[..., 2]), np.hypot(other[..., 1], other[..., 2])
    mean7 = ((chroma[0] + chroma[1]) / 2) ** 7
    grow = 1.5 - 0.5 * np.sqrt(mean7 / (mean7 + 25.0**7))
    a, b = (one[..., 1] * grow, other[..., 1] * grow), (one[..., 2], other[..., 2])
    c = np.hypot(a[0], b[0]), np.hypot(a[1], b[1])
    hue = [np.degrees(np.arctan2(b[i], a[i])) % 360 for i in range(2)]
    turn = (hue[1] - hue[0] + 180) % 360 - 180
    is_grey = c[0] * c[1] == 0
    d_hue = 2 * np.sqrt(c[0] * c[1]) * np.sin(np.radians(np.where(is_grey, 0, turn) / 2))
    mean_c, mean_l = (c[0] + c[1]) / 2, (one[..., 0] + other[..., 0]) / 2
    middle = np.where(is_grey, hue[0] + hue[1], (hue[0] + turn / 2) % 360)
    weight = (
        1 - 0.17 * np.cos(np.radians(middle - 30)) + 0.24 * np.cos(np.radians(2 * middle))
        + 0.32 * np.cos(np.radians(3 * middle + 6)) - 0.20 * np.cos(np.radians(4 * middle - 63))
    )  # fmt: skip
    s_l = 1 + 0.015 * (mean_l - 50) ** 2 / np.sqrt(20 + (mean_l - 50) ** 2)
    s_c, s_h = 1 + 0.045 * mean_c, 1 + 0.015 * mean_c * weight
    far = np.sqrt(mean_c**7 / (mean_c**7 + 25.0**7))
    bend = -2 * far * np.sin(np.radians(60 * np.exp(-(((middle - 275) / 25) ** 2))))
    parts = (
        (other[..., 0] - one[..., 0]) / s_l, (c[1] - c[0]) / s_c, d_hue / s_h,
    )  # fmt: skip
    squares = sum(part**2 for part in parts) + bend * parts[1] * parts[2]
    return np.sqrt(np.maximum(0, squares))


def closest(colours: list[str]) -> dict[str, float]:
    """The smallest CIEDE2000 between any two colours, by who looks at them; `grey` is ΔL*."""
    pairs = np.triu_indices(len(colours), 1)
    seen = views(linear(colours))
    result = {name: ciede2000(v[pairs[0]], v[pairs[1]]).min() for name, v in seen.items()}
    lightness = seen["plain"][:, 0]
    result["grey"] = np.abs(lightness[pairs[0]] - lightness[pairs[1]]).min()
    return {name: round(float(value), 1) for name, value in result.items()}
