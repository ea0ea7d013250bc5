"""Bundle adjustment: derivatives, the direct solution, and messages that lead to it."""

import numpy as np
import pytest

from tremula.garden.applications.bundle_adjustment.codelets import N_BOTH, N_CAMERA, N_PIXEL
from tremula.garden.applications.bundle_adjustment.direct import jacobians, solve
from tremula.garden.applications.bundle_adjustment.main import rounds_until
from tremula.garden.applications.bundle_adjustment.propagation import BeliefPropagation, packed
from tremula.garden.applications.bundle_adjustment.scene import (
    NOISE_PIXELS,
    cost,
    make_scene,
    projected,
    rotated,
)


def after(program, count):
    """Cameras and points after the last of some linearisations."""
    return list(program.linearisations(count))[-1]


def test_rotations_keep_lengths_and_turn_by_the_angle():
    """A quarter turn around z takes x to y; lengths stay."""
    quarter = np.array([[0, 0, np.pi / 2]])
    assert np.allclose(rotated(quarter, np.array([[1.0, 0, 0]])), [[0, 1, 0]])
    vectors, points = np.random.default_rng(1).standard_normal((2, 20, 3))
    lengths = np.linalg.norm(rotated(vectors, points), axis=1)
    assert np.allclose(lengths, np.linalg.norm(points, axis=1))


def test_derivatives_are_those_of_small_differences():
    """By all nine numbers of a camera and a point."""
    scene = make_scene(4, 5, 3)
    cameras, points = scene.cameras[scene.seen[:, 0]], scene.points[scene.seen[:, 1]]
    both = np.concatenate(jacobians(cameras, points), axis=2)
    for i in range(N_BOTH):
        step = 1e-6 * np.eye(N_BOTH)[i]
        ahead = projected(cameras + step[:N_CAMERA], points + step[N_CAMERA:])
        behind = projected(cameras - step[:N_CAMERA], points - step[N_CAMERA:])
        expected = (ahead - behind) / 2e-6 / NOISE_PIXELS
        assert np.allclose(both[:, :, i], expected, atol=1e-5), i


def test_the_direct_solution_is_a_minimum():
    """No small change of a camera or a point costs less, and the truth costs more."""
    scene = make_scene(5, 12, 4)
    cameras, points = solve(scene)
    least = cost(scene, cameras, points)
    assert least < cost(scene, scene.true_cameras, scene.true_points)
    random = np.random.default_rng(2)
    for _ in range(20):
        other = cameras + 1e-4 * random.standard_normal(cameras.shape)
        assert cost(scene, other, points) > least
        other = points + 1e-4 * random.standard_normal(points.shape)
        assert cost(scene, cameras, other) > least


def test_priors_are_packed_row_by_row():
    """η is zero, and the inverse variances stand on the diagonal of the triangle."""
    assert packed(np.array([[0.5, 0.25]])).tolist() == [[0, 0, 4, 0, 16]]


def test_tiles_linearise_as_the_reference_does():
    """At the guesses: derivatives, and measured minus predicted pixels."""
    scene = make_scene(4, 6, 3)
    program = BeliefPropagation(scene, n_inner=1, chip="gc2", n_tiles=8)
    after(program, 1)
    result = program.engine.read_tensor("linearised")
    cameras, points = scene.cameras[scene.seen[:, 0]], scene.points[scene.seen[:, 1]]
    expected = np.concatenate(jacobians(cameras, points), axis=2)
    derivatives = result[:, : N_PIXEL * N_BOTH].reshape(-1, N_PIXEL, N_BOTH)
    assert np.allclose(derivatives, expected, rtol=1e-4, atol=1e-2)
    residual = (scene.pixels - projected(cameras, points)) / NOISE_PIXELS
    assert np.allclose(result[:, N_PIXEL * N_BOTH :], residual, atol=1e-3)


def test_messages_are_exact_on_a_tree():
    """One point and six cameras have no loops: a few rounds give the direct solution."""
    scene = make_scene(6, 1, 6, seed=3)
    program = BeliefPropagation(scene, n_inner=30, chip="gc2", n_tiles=4)
    cameras, points = after(program, 6)
    expected_cameras, expected_points = solve(scene)
    assert np.allclose(points, expected_points, atol=2e-5)
    assert np.allclose(cameras, expected_cameras, atol=2e-5)


def test_messages_lead_to_the_direct_solution():
    """With loops, too: the cost falls to that of the direct solution, and again if run again."""
    scene = make_scene(6, 40, 4)
    program = BeliefPropagation(scene, n_inner=20, chip="gc2", n_tiles=60)
    cameras, points = after(program, 15)
    expected_cameras, expected_points = solve(scene)
    least = cost(scene, expected_cameras, expected_points)
    assert cost(scene, cameras, points) == pytest.approx(least, rel=2e-3)
    assert np.abs(points - expected_points).max() < 0.03
    again, _ = after(program, 15)
    assert np.array_equal(cameras, again)


def test_rounds_are_counted_until_the_cost_stays_low():
    """A cost that falls below the limit and rises again counts from its last fall."""
    assert rounds_until([0.5, 0.005, 0.02, 0.001], 0.01) == 4 * 20
    assert rounds_until([0.5, 0.5], 0.01) == np.inf


def test_too_few_views_are_refused():
    """A point seen once has no place."""
    with pytest.raises(ValueError, match=r"seen by 2 to 5 cameras .* got 1"):
        make_scene(5, 10, 1)
