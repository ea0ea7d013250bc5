"""A generated scene: cameras on an arc see points; where they stand is known only roughly.

A camera has six numbers: a rotation vector ω (its length is the angle) and a translation t. A point
x is seen at f (y₀, y₁) / y₂ with y = R(ω) x + t, in pixels, with noise of one pixel.
"""

from dataclasses import dataclass

import numpy as np

FOCAL_PIXELS = 500.0
NOISE_PIXELS = 1.0
# How well cameras and points are known before any picture: deviations of the initial guesses.
ROTATION_DEVIATION = 0.02  # rad
TRANSLATION_DEVIATION = 0.05
POINT_DEVIATION = 0.15
ANCHOR_DEVIATION = 1e-3  # of the first two cameras, which fix place and size of the scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is measured and guessed, and what is true; a row of `seen` is a camera and a point."""

    cameras: np.ndarray  # [n, 6]: guesses
    points: np.ndarray  # [m, 3]: guesses
    camera_deviations: np.ndarray  # [n, 6]
    point_deviations: np.ndarray  # [m, 3]
    seen: np.ndarray  # [k, 2], sorted by point
    pixels: np.ndarray  # [k, 2]
    true_cameras: np.ndarray
    true_points: np.ndarray


def make_scene(n_cameras: int, n_points: int, views_per_point: int, seed: int = 0) -> Scene:
    """Each point is seen by some cameras that stand side by side."""
    if not 2 <= views_per_point <= n_cameras:
        raise ValueError(
            f"a point must be seen by 2 to {n_cameras} cameras (all there are),"
            f" got {views_per_point}."
        )
    random = np.random.default_rng(seed)
    angles = np.linspace(-0.7, 0.7, n_cameras)
    rotation = np.stack([0.05 * random.standard_normal(n_cameras), angles,
                         0.05 * random.standard_normal(n_cameras)], axis=1)  # fmt: skip
    translation = np.array([0.0, 0.0, 6.0]) + 0.2 * random.standard_normal((n_cameras, 3))
    cameras = np.concatenate([rotation, translation], axis=1)
    points = random.uniform(-1.5, 1.5, (n_points, 3))
    first = random.integers(0, n_cameras - views_per_point + 1, n_points)
    camera = (first[:, None] + np.arange(views_per_point)).ravel()
    seen = np.stack([camera, np.repeat(np.arange(n_points), views_per_point)], axis=1)
    exact = projected(cameras[seen[:, 0]], points[seen[:, 1]])
    deviations = np.tile(np.repeat([ROTATION_DEVIATION, TRANSLATION_DEVIATION], 3), (n_cameras, 1))
    deviations[:2] = ANCHOR_DEVIATION
    point_deviations = np.full(points.shape, POINT_DEVIATION)
    return Scene(
        cameras=cameras + deviations * random.standard_normal(cameras.shape),
        points=points + point_deviations * random.standard_normal(points.shape),
        camera_deviations=deviations,
        point_deviations=point_deviations,
        seen=seen,
        pixels=exact + NOISE_PIXELS * random.standard_normal(exact.shape),
        true_cameras=cameras,
        true_points=points,
    )


def rotated(vectors: np.ndarray, points: np.ndarray) -> np.ndarray:
    """R(ω) x of each row (Rodrigues' formula)."""
    angle = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    axis = vectors / angle
    along = (axis * points).sum(1, keepdims=True)
    turned = np.cross(axis, points)
    return points * np.cos(angle) + turned * np.sin(angle) + axis * along * (1 - np.cos(angle))


def projected(cameras: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Pixels [k, 2] of points [k, 3] in cameras [k, 6]."""
    y = rotated(cameras[:, :3], points) + cameras[:, 3:]
    return FOCAL_PIXELS * y[:, :2] / y[:, 2:]


def reprojection_pixels(scene: Scene, cameras: np.ndarray, points: np.ndarray) -> float:
    """Root mean square of measured minus predicted pixels."""
    predicted = projected(cameras[scene.seen[:, 0]], points[scene.seen[:, 1]])
    return float(np.sqrt(np.mean((predicted - scene.pixels) ** 2)))


def cost(scene: Scene, cameras: np.ndarray, points: np.ndarray) -> float:
    """What bundle adjustment makes least: squares of all residuals in units of their deviations."""
    predicted = projected(cameras[scene.seen[:, 0]], points[scene.seen[:, 1]])
    of_pixels = ((predicted - scene.pixels) / NOISE_PIXELS) ** 2
    of_cameras = ((cameras - scene.cameras) / scene.camera_deviations) ** 2
    of_points = ((points - scene.points) / scene.point_deviations) ** 2
    return float(of_pixels.sum() + of_cameras.sum() + of_points.sum())
