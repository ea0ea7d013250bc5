"""Gaussian belief propagation as codelets: beliefs of variables, messages of measurements.

A Gaussian of d numbers is held in information form: η[d], then the lower triangle of Λ, row by row.
The mean is Λ⁻¹ η. Products of Gaussians are sums of these.

Variables are distances from the initial guesses: small numbers, of which float32 has enough digits.

A measurement has derivatives J of two pixels by its camera and its point, in units of the noise,
and b = J x₀ + measured - predicted(x₀) at the place x₀ where they were taken. Its message to one
side uses the *cavity* of the other: that side's belief without what this measurement told it. With
the cavity's covariance P and mean m,

    S = 1 + J_other P J_otherᵀ      r = b - J_other m      Λ = J_ownᵀ S⁻¹ J_own     η = J_ownᵀ S⁻¹ r
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false

import math
from typing import Any

import numpy as np

from tremula import poplar as tr

N_CAMERA, N_POINT, N_PIXEL = 6, 3, 2
N_BOTH = N_CAMERA + N_POINT
# Numbers of a packed Gaussian, and of a linearised measurement: J row by row, then b.
PACKED_CAMERA, PACKED_POINT = 27, 9
MOST_PACKED = 21  # the lower triangle of a camera's Λ
LINEARISED = N_PIXEL * N_BOTH + N_PIXEL


def factor_in_place(matrix: Any, n: int) -> None:  # noqa: ANN401 - float32[n (n + 1) / 2]
    """Cholesky's factor of a packed matrix, in its place."""
    for i in range(n):
        for j in range(i + 1):
            total = matrix[i * (i + 1) // 2 + j]
            for k in range(j):
                total -= matrix[i * (i + 1) // 2 + k] * matrix[j * (j + 1) // 2 + k]
            if i == j:
                matrix[i * (i + 1) // 2 + j] = math.sqrt(max(total, tr.float32(1e-12)))
            else:
                matrix[i * (i + 1) // 2 + j] = total / matrix[j * (j + 1) // 2 + j]


def solve_in_place(factor: Any, vector: Any, n: int) -> None:  # noqa: ANN401
    """The solution of L Lᵀ x = vector, in its place."""
    for i in range(n):
        for k in range(i):
            vector[i] -= factor[i * (i + 1) // 2 + k] * vector[k]
        vector[i] /= factor[i * (i + 1) // 2 + i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            vector[i] -= factor[k * (k + 1) // 2 + i] * vector[k]
        vector[i] /= factor[i * (i + 1) // 2 + i]


class SumMessages(tr.MultiVertex):
    """A variable's belief: its prior times all messages to it. Workers share out the numbers."""

    prior: tr.Input[tr.Vector[tr.float32]]
    messages: tr.Vector[tr.Input[tr.Vector[tr.float32]]]
    belief: tr.Output[tr.Vector[tr.float32]]

    def compute(self: Any, worker_id: int) -> None:
        for i in range(worker_id, len(self.prior), self.n_workers):
            total = self.prior[i]
            for k in range(len(self.messages)):
                total += self.messages[k][i]
            self.belief[i] = total


class Mean(tr.Vertex):
    """Where a variable is believed to be."""

    belief: tr.Input[tr.Vector[tr.float32]]
    mean: tr.Output[tr.Vector[tr.float32]]

    def compute(self: Any) -> None:
        n = len(self.mean)
        factor = np.zeros(MOST_PACKED, tr.float32)
        for i in range(len(self.belief) - n):
            factor[i] = self.belief[n + i]
        for i in range(n):
            self.mean[i] = self.belief[i]
        factor_in_place(factor, n)
        solve_in_place(factor, self.mean, n)


class Linearise(tr.Vertex):
    """A measurement's derivatives where its camera and its point are believed to be now."""

    camera_guess: tr.Input[tr.Vector[tr.float32]]
    point_guess: tr.Input[tr.Vector[tr.float32]]
    camera: tr.Input[tr.Vector[tr.float32]]  # distances from the guesses, as believed
    point: tr.Input[tr.Vector[tr.float32]]
    pixels: tr.Input[tr.Vector[tr.float32]]
    linearised: tr.Output[tr.Vector[tr.float32]]
    focal: tr.float32  # in units of the noise

    def compute(self: Any) -> None:
        rotation = np.zeros(9, tr.float32)  # R(ω)
        turning = np.zeros(9, tr.float32)  # the left Jacobian of ω
        x = self.camera_guess[0] + self.camera[0]
        y = self.camera_guess[1] + self.camera[1]
        z = self.camera_guess[2] + self.camera[2]
        angle = math.sqrt(x * x + y * y + z * z) + tr.float32(1e-9)
        x, y, z = x / angle, y / angle, z / angle
        sine, cosine = math.sin(angle), math.cos(angle)
        from_axis(rotation, x, y, z, cosine, sine)
        from_axis(turning, x, y, z, sine / angle, (1 - cosine) / angle)

        turned = np.zeros(3, tr.float32)  # R x
        for i in range(3):
            for j in range(3):
                turned[i] += rotation[3 * i + j] * (self.point_guess[j] + self.point[j])
        depth = turned[2] + self.camera_guess[5] + self.camera[5]
        scale = self.focal / depth
        across = (turned[0] + self.camera_guess[3] + self.camera[3]) / depth
        down = (turned[1] + self.camera_guess[4] + self.camera[4]) / depth
        for pixel in range(N_PIXEL):
            at = pixel * N_BOTH
            slope = across if pixel == 0 else down
            # Derivatives by y = R x + t, then along the chain to ω, t and x.
            self.linearised[at + 3] = scale if pixel == 0 else tr.float32(0)
            self.linearised[at + 4] = scale if pixel == 1 else tr.float32(0)
            self.linearised[at + 5] = -scale * slope
            a, b, c = self.linearised[at + 3], self.linearised[at + 4], self.linearised[at + 5]
            # d(Rx) = -(Rx) × (turning dω)
            u = turned[1] * c - turned[2] * b
            v = turned[2] * a - turned[0] * c
            w = turned[0] * b - turned[1] * a
            for j in range(3):
                self.linearised[at + j] = u * turning[j] + v * turning[3 + j] + w * turning[6 + j]
                self.linearised[at + 6 + j] = (
                    a * rotation[j] + b * rotation[3 + j] + c * rotation[6 + j]
                )
            total = self.pixels[pixel] - self.focal * slope
            for j in range(N_CAMERA):
                total += self.linearised[at + j] * self.camera[j]
            for j in range(N_POINT):
                total += self.linearised[at + N_CAMERA + j] * self.point[j]
            self.linearised[N_PIXEL * N_BOTH + pixel] = total


def from_axis(matrix: Any, x: Any, y: Any, z: Any, on: Any, off: Any) -> None:  # noqa: ANN401
    """`on` × identity + (1 - on) × axis axisᵀ + off × the matrix of axis × …"""
    rest = 1 - on
    matrix[0] = on + rest * x * x
    matrix[1] = rest * x * y - off * z
    matrix[2] = rest * x * z + off * y
    matrix[3] = rest * x * y + off * z
    matrix[4] = on + rest * y * y
    matrix[5] = rest * y * z - off * x
    matrix[6] = rest * x * z - off * y
    matrix[7] = rest * y * z + off * x
    matrix[8] = on + rest * z * z


class SendMessages(tr.Vertex):
    """A measurement tells its camera and its point what follows from the other's cavity."""

    camera: tr.Input[tr.Vector[tr.float32]]  # beliefs
    point: tr.Input[tr.Vector[tr.float32]]
    linearised: tr.Input[tr.Vector[tr.float32]]
    to_camera: tr.InOut[tr.Vector[tr.float32]]
    to_point: tr.InOut[tr.Vector[tr.float32]]
    damping: tr.float32  # share of the old η that is kept

    def compute(self: Any) -> None:
        of_camera = np.zeros(PACKED_CAMERA, tr.float32)
        of_point = np.zeros(PACKED_POINT, tr.float32)
        for i in range(PACKED_CAMERA):
            of_camera[i] = self.camera[i] - self.to_camera[i]
        for i in range(PACKED_POINT):
            of_point[i] = self.point[i] - self.to_point[i]
        tell(
            self.to_camera, N_CAMERA, 0, of_point, N_POINT, N_CAMERA, self.linearised, self.damping
        )
        tell(
            self.to_point, N_POINT, N_CAMERA, of_camera, N_CAMERA, 0, self.linearised, self.damping
        )


def tell(  # noqa: PLR0917 - all there is
    message: Any,  # noqa: ANN401
    n: int,
    own: int,
    cavity: Any,  # noqa: ANN401
    m: int,
    other: int,
    linearised: Any,  # noqa: ANN401
    damping: Any,  # noqa: ANN401
) -> None:
    """Renew a message of n numbers; own and other are the first columns of the two sides in J."""
    factor = np.zeros(MOST_PACKED, tr.float32)
    for i in range(m * (m + 1) // 2):
        factor[i] = cavity[m + i]
    factor_in_place(factor, m)
    mean = np.zeros(N_CAMERA, tr.float32)
    first = np.zeros(N_CAMERA, tr.float32)  # P J_otherᵀ, its two columns
    second = np.zeros(N_CAMERA, tr.float32)
    for i in range(m):
        mean[i] = cavity[i]
        first[i] = linearised[other + i]
        second[i] = linearised[N_BOTH + other + i]
    solve_in_place(factor, mean, m)
    solve_in_place(factor, first, m)
    solve_in_place(factor, second, m)
    s00, s01, s11 = tr.float32(1), tr.float32(0), tr.float32(1)
    r0, r1 = linearised[N_PIXEL * N_BOTH], linearised[N_PIXEL * N_BOTH + 1]
    for i in range(m):
        j0, j1 = linearised[other + i], linearised[N_BOTH + other + i]
        s00 += j0 * first[i]
        s01 += j0 * second[i]
        s11 += j1 * second[i]
        r0 -= j0 * mean[i]
        r1 -= j1 * mean[i]
    determinant = s00 * s11 - s01 * s01
    i00, i01, i11 = s11 / determinant, -s01 / determinant, s00 / determinant
    at = n
    for i in range(n):
        a0 = linearised[own + i] * i00 + linearised[N_BOTH + own + i] * i01
        a1 = linearised[own + i] * i01 + linearised[N_BOTH + own + i] * i11
        message[i] = damping * message[i] + (1 - damping) * (a0 * r0 + a1 * r1)
        for j in range(i + 1):
            message[at] = a0 * linearised[own + j] + a1 * linearised[N_BOTH + own + j]
            at += 1
