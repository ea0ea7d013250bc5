"""Bundle adjustment as a tile program: which tile has what, and how beliefs and messages alternate.

    Execute   each camera and each point: where it is believed to be
    Execute   each measurement: derivatives at this place
    Repeat:
        Execute   each measurement: messages to its camera and its point
        Execute   each camera and each point: its belief, from its prior and all messages

Points are dealt to tiles, and measurements lie with their point: only what a camera believes, and
what it is told, travels. Each camera has a separate tile while there are any left.
"""

from collections.abc import Iterator

import numpy as np

from tremula import poplar as tr
from tremula.garden.applications.bundle_adjustment.codelets import (
    LINEARISED,
    N_CAMERA,
    N_PIXEL,
    N_POINT,
    PACKED_CAMERA,
    PACKED_POINT,
    Linearise,
    Mean,
    SendMessages,
    SumMessages,
)
from tremula.garden.applications.bundle_adjustment.scene import FOCAL_PIXELS, NOISE_PIXELS, Scene
from tremula.poplar.vertices.bulk import Slices
from tremula.runtime.engine import Engine

DAMPING = 0.2  # without any, some beliefs swing between two values


class BeliefPropagation:
    """The program for one graph of measurements; a linearisation serves `n_inner` rounds."""

    def __init__(self, scene: Scene, *, n_inner: int, chip: str, n_tiles: int):
        self.scene = scene
        device = tr.IPUModel(chip, tiles_per_ipu=n_tiles).create_device()
        self.graph = tr.Graph(device)
        self.n_cameras, self.n_points = len(scene.cameras), len(scene.points)
        self._place(n_tiles)
        self.engine = Engine(self.graph, self._programs(n_inner)).load(device)

    def _place(self, n_tiles: int) -> None:
        """Cameras on the last tiles, points on all others, measurements with their points."""
        n_for_cameras = min(self.n_cameras, max(1, n_tiles // 4))
        n_for_points = max(1, n_tiles - n_for_cameras)
        self.camera_tiles = n_tiles - 1 - np.arange(self.n_cameras) % n_for_cameras
        self.point_tiles = np.arange(self.n_points) % n_for_points
        self.measurement_tiles = self.point_tiles[self.scene.seen[:, 1]]

    # -- the programs ------------------------------------------------------------------------------

    def _programs(self, n_inner: int) -> list[tr.Program]:
        """The start, and one linearisation with its rounds."""
        camera = {
            name: self._rows(f"camera {name}", size, self.camera_tiles)
            for name, size in (
                ("guess", N_CAMERA),
                ("prior", PACKED_CAMERA),
                ("belief", PACKED_CAMERA),
                ("mean", N_CAMERA),
            )
        }
        point = {
            name: self._rows(f"point {name}", size, self.point_tiles)
            for name, size in (
                ("guess", N_POINT), ("prior", PACKED_POINT), ("belief", PACKED_POINT),
                ("mean", N_POINT),
            )
        }  # fmt: skip
        measurement = {
            name: self._rows(name, size, self.measurement_tiles)
            for name, size in (
                ("pixels", N_PIXEL), ("linearised", LINEARISED),
                ("to_camera", PACKED_CAMERA), ("to_point", PACKED_POINT),
            )
        }  # fmt: skip
        believe, means = self._beliefs(camera, point, measurement), self._means(camera, point)
        linearise = self._linearised(camera, point, measurement)
        send = self._messages(camera, point, measurement)
        for name, tensor in (
            ("camera guess", camera["guess"]), ("point guess", point["guess"]),
            ("camera prior", camera["prior"]), ("point prior", point["prior"]),
            ("pixels", measurement["pixels"]), ("to camera", measurement["to_camera"]),
            ("to point", measurement["to_point"]),
        ):  # fmt: skip
            self.graph.create_host_write(name, tensor)
        self.graph.create_host_read("cameras", camera["mean"])
        self.graph.create_host_read("points", point["mean"])
        self.graph.create_host_read("linearised", measurement["linearised"])
        rounds = tr.Repeat(n_inner, tr.Sequence(send, believe))
        return [tr.Sequence(believe, means), tr.Sequence(linearise, rounds, means)]

    def _rows(self, name: str, n_columns: int, tiles: np.ndarray) -> tr.Tensor:
        """[rows, columns]: each row on its tile."""
        tensor = self.graph.add_variable(tr.FLOAT, [len(tiles), n_columns], name)
        for row, tile in enumerate(tiles.tolist()):
            self.graph.set_tile_mapping(tensor[row], tile)
        return tensor

    def _beliefs(self, camera: dict, point: dict, measurement: dict) -> tr.Program:
        compute_set = self.graph.add_compute_set("beliefs")
        for side, of_side, tiles, messages in (
            (0, camera, self.camera_tiles, measurement["to_camera"]),
            (1, point, self.point_tiles, measurement["to_point"]),
        ):
            order = np.argsort(self.scene.seen[:, side], kind="stable")
            counts = np.bincount(self.scene.seen[:, side], minlength=len(tiles))
            size = messages.shape[1]
            start = np.concatenate([[0], np.cumsum(counts)])
            incoming = Slices(messages, order * size, (order + 1) * size, start)
            fields = {"prior": of_side["prior"], "belief": of_side["belief"], "messages": incoming}
            self.graph.add_vertices(compute_set, SumMessages, fields, tiles=tiles)
        return tr.Execute(compute_set)

    def _means(self, camera: dict, point: dict) -> tr.Program:
        compute_set = self.graph.add_compute_set("means")
        for of_side, tiles in ((camera, self.camera_tiles), (point, self.point_tiles)):
            fields = {"belief": of_side["belief"], "mean": of_side["mean"]}
            self.graph.add_vertices(compute_set, Mean, fields, tiles=tiles)
        return tr.Execute(compute_set)

    def _linearised(self, camera: dict, point: dict, measurement: dict) -> tr.Program:
        compute_set = self.graph.add_compute_set("linearise")
        fields = {
            "camera_guess": self._of_measurements(camera["guess"], 0),
            "point_guess": self._of_measurements(point["guess"], 1),
            "camera": self._of_measurements(camera["mean"], 0),
            "point": self._of_measurements(point["mean"], 1),
            "pixels": measurement["pixels"],
            "linearised": measurement["linearised"],
            "focal": FOCAL_PIXELS / NOISE_PIXELS,
        }
        self.graph.add_vertices(compute_set, Linearise, fields, tiles=self.measurement_tiles)
        return tr.Execute(compute_set)

    def _messages(self, camera: dict, point: dict, measurement: dict) -> tr.Program:
        compute_set = self.graph.add_compute_set("messages")
        fields = {
            "camera": self._of_measurements(camera["belief"], 0),
            "point": self._of_measurements(point["belief"], 1),
            "linearised": measurement["linearised"],
            "to_camera": measurement["to_camera"],
            "to_point": measurement["to_point"],
            "damping": DAMPING,
        }
        self.graph.add_vertices(compute_set, SendMessages, fields, tiles=self.measurement_tiles)
        return tr.Execute(compute_set)

    def _of_measurements(self, rows: tr.Tensor, side: int) -> Slices:
        """For each measurement the row of its camera (side 0) or its point (side 1)."""
        at, size = self.scene.seen[:, side], rows.shape[1]
        return Slices(rows, at * size, (at + 1) * size)

    # -- a run -------------------------------------------------------------------------------------

    def linearisations(self, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Cameras and points after each of n linearisations, from the guesses on."""
        scene = self.scene
        self.engine.write_tensor("camera guess", scene.cameras.astype(np.float32))
        self.engine.write_tensor("point guess", scene.points.astype(np.float32))
        self.engine.write_tensor("camera prior", packed(scene.camera_deviations))
        self.engine.write_tensor("point prior", packed(scene.point_deviations))
        self.engine.write_tensor("pixels", (scene.pixels / NOISE_PIXELS).astype(np.float32))
        n_seen = len(scene.seen)
        self.engine.write_tensor("to camera", np.zeros((n_seen, PACKED_CAMERA), np.float32))
        self.engine.write_tensor("to point", np.zeros((n_seen, PACKED_POINT), np.float32))
        self.engine.run(0)
        for _ in range(count):
            self.engine.run(1)
            cameras = scene.cameras + self.engine.read_tensor("cameras")
            yield cameras, scene.points + self.engine.read_tensor("points")


def packed(deviations: np.ndarray) -> np.ndarray:
    """Gaussians around 0 of independent numbers: η = 0, then Λ's lower triangle, row by row."""
    n_rows, n = deviations.shape
    triangle = np.zeros((n_rows, n * (n + 1) // 2), np.float32)
    triangle[:, np.cumsum(np.arange(1, n + 1)) - 1] = deviations**-2.0
    return np.concatenate([np.zeros((n_rows, n), np.float32), triangle], axis=1)
