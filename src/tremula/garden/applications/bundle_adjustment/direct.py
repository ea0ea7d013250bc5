"""The reference: Gauss and Newton's steps on all unknowns at once, points eliminated first."""

import numpy as np

from tremula.garden.applications.bundle_adjustment.scene import (
    FOCAL_PIXELS,
    NOISE_PIXELS,
    Scene,
    projected,
    rotated,
)


def solve(scene: Scene, n_steps: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Cameras and points of least cost."""
    cameras, points = scene.cameras.copy(), scene.points.copy()
    for _ in range(n_steps):
        by_camera, by_point = jacobians(cameras[scene.seen[:, 0]], points[scene.seen[:, 1]])
        predicted = projected(cameras[scene.seen[:, 0]], points[scene.seen[:, 1]])
        residual = (scene.pixels - predicted) / NOISE_PIXELS
        step_cameras, step_points = _step(scene, cameras, points, by_camera, by_point, residual)
        cameras, points = cameras + step_cameras, points + step_points
    return cameras, points


def jacobians(cameras: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of pixels, over their noise: [k, 2, 6] by camera, [k, 2, 3] by point."""
    y = rotated(cameras[:, :3], points)
    by_rotation = -cross_matrices(y) @ left_jacobians(cameras[:, :3])
    y = y + cameras[:, 3:]
    of_plane = np.zeros((len(y), 2, 3))
    of_plane[:, 0, 0] = of_plane[:, 1, 1] = 1 / y[:, 2]
    of_plane[:, :, 2] = -y[:, :2] / y[:, 2:] ** 2
    of_plane *= FOCAL_PIXELS / NOISE_PIXELS
    by_camera = np.concatenate([of_plane @ by_rotation, of_plane], axis=2)
    eye = np.broadcast_to(np.eye(3), (len(y), 3, 3))
    columns = [rotated(cameras[:, :3], eye[:, i]) for i in range(3)]
    return by_camera, of_plane @ np.stack(columns, axis=2)


def cross_matrices(v: np.ndarray) -> np.ndarray:
    """[k, 3, 3]: the matrix of each cross product v × …"""
    result = np.zeros((len(v), 3, 3))
    result[:, 0, 1], result[:, 0, 2], result[:, 1, 2] = -v[:, 2], v[:, 1], -v[:, 0]
    return result - result.transpose(0, 2, 1)


def left_jacobians(vectors: np.ndarray) -> np.ndarray:
    """[k, 3, 3]: how far R(ω + d) is from R(ω), as a rotation vector, by d."""
    angle = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)[:, None, None]
    axis = vectors / angle[:, :, 0]
    share = np.sin(angle) / angle
    outer = axis[:, :, None] * axis[:, None, :]
    turning = (1 - np.cos(angle)) / angle * cross_matrices(axis)
    return share * np.eye(3) + (1 - share) * outer + turning


def _step(
    scene: Scene,
    cameras: np.ndarray,
    points: np.ndarray,
    by_camera: np.ndarray,
    by_point: np.ndarray,
    residual: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    camera, point = scene.seen.T
    n, m = len(cameras), len(points)
    of_cameras = _diagonal_blocks(scene.camera_deviations)
    of_points = _diagonal_blocks(scene.point_deviations)
    np.add.at(of_cameras, camera, by_camera.transpose(0, 2, 1) @ by_camera)
    np.add.at(of_points, point, by_point.transpose(0, 2, 1) @ by_point)
    right_cameras = (scene.cameras - cameras) / scene.camera_deviations**2
    right_points = (scene.points - points) / scene.point_deviations**2
    np.add.at(right_cameras, camera, np.einsum("kpi,kp->ki", by_camera, residual))
    np.add.at(right_points, point, np.einsum("kpi,kp->ki", by_point, residual))

    mixed = by_camera.transpose(0, 2, 1) @ by_point  # [k, 6, 3]
    inverse = np.linalg.inv(of_points)
    matrix = np.zeros((n, n, 6, 6))
    matrix[np.arange(n), np.arange(n)] = of_cameras
    start = np.searchsorted(point, np.arange(m + 1))
    for j in range(m):  # a point ties all cameras that see it to each other
        rows, of_point = mixed[start[j] : start[j + 1]], camera[start[j] : start[j + 1]]
        products = np.einsum("aij,jk,blk->abil", rows, inverse[j], rows)
        np.subtract.at(matrix, (of_point[:, None], of_point), products)
        np.subtract.at(right_cameras, of_point, rows @ inverse[j] @ right_points[j])
    whole = matrix.transpose(0, 2, 1, 3).reshape(n * 6, n * 6)
    step = np.linalg.solve(whole, right_cameras.ravel()).reshape(n, 6)
    np.subtract.at(right_points, point, np.einsum("kij,ki->kj", mixed, step[camera]))
    return step, np.einsum("mij,mj->mi", inverse, right_points)


def _diagonal_blocks(deviations: np.ndarray) -> np.ndarray:
    return deviations[:, :, None] ** -2.0 * np.eye(deviations.shape[1])
