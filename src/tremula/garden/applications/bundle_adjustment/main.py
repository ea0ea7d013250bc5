"""Adjusts cameras and points by messages between tiles, and compares with the direct solution."""

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.bundle_adjustment.direct import solve
from tremula.garden.applications.bundle_adjustment.propagation import BeliefPropagation
from tremula.garden.applications.bundle_adjustment.scene import (
    Scene,
    cost,
    make_scene,
    projected,
    reprojection_pixels,
)

CHIP = "gc2"  # the published figure is of this one, with 1216 tiles
N_ROUNDS = 20  # of messages between two linearisations


def run(settings: Settings) -> Findings:
    scene, n_tiles = (
        (make_scene(12, 150, 6), 300) if settings.tiny else (make_scene(125, 1919, 6), 1216)
    )
    settings.show(
        f"{len(scene.cameras)} cameras, {len(scene.points):,} points, {len(scene.seen):,}"
        f" measurements on {n_tiles} tiles; the guesses are"
        f" {reprojection_pixels(scene, scene.cameras, scene.points):.1f} pixels off"
    )
    least = cost(scene, *solve(scene))
    program = BeliefPropagation(scene, n_inner=N_ROUNDS, chip=CHIP, n_tiles=n_tiles)
    above, pixels, n_rounds = [], [], 0
    cameras, points = scene.cameras, scene.points
    for cameras, points in program.linearisations(25 if settings.tiny else 40):
        n_rounds += N_ROUNDS
        above.append(cost(scene, cameras, points) / least - 1)
        pixels.append(reprojection_pixels(scene, cameras, points))
        if len(above) % 5 == 0:
            settings.show(
                f"  {n_rounds} rounds: {pixels[-1]:.3f} pixels,"
                f" cost {above[-1]:.1e} above the least"
            )
    return Findings(
        results={
            "cost_above_direct": above[-1],
            "reprojection_pixels": pixels[-1],
            "rounds_to_1_percent": float(rounds_until(above, 0.01)),
        },
        modelled=modelled_engine(program.engine, settings, n_items=n_rounds, unit="rounds/s"),
        curves={"reprojection error, pixels": pixels, "cost above the direct solution": above},
        picture=picture(scene, cameras, points),
    )


def rounds_until(above: list[float], limit: float) -> float:
    """Rounds after which the cost stays below a limit; infinity if it does not in the end."""
    is_above = np.array(above) > limit
    n_before = int(np.flatnonzero(is_above).max(initial=-1)) + 1
    return np.inf if is_above[-1] else (n_before + 1) * N_ROUNDS


def picture(
    scene: Scene, cameras: np.ndarray, points: np.ndarray, n_pixels: int = 96
) -> np.ndarray:
    """The middle camera's view: guesses dark, adjusted points bright."""
    middle = len(cameras) // 2
    view = np.zeros((n_pixels, n_pixels))
    for shade, camera, where in (
        (0.35, scene.cameras[middle], scene.points),
        (1.0, cameras[middle], points),
    ):
        seen = projected(np.tile(camera, (len(where), 1)), where)
        at = np.clip((seen + 200) / 400 * n_pixels, 0, n_pixels - 1).astype(int)
        view[at[:, 1], at[:, 0]] = np.maximum(view[at[:, 1], at[:, 0]], shade)
    return view
