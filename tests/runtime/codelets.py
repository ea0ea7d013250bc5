"""The few codelets all engine tests share: compiling a kernel takes about a second.

Each has a `cycles` method, so that no kernel is needed to cost it, except Countdown, whose cycles
are counted while it runs. `plain` holds the same computation on NumPy arrays, for the reference
interpreter.
"""

import numpy as np

from tremula import (
    InOut,
    Input,
    Output,
    Vector,
    Vertex,
    float32,
    half,
    int32,
    uint8,
    uint32,
)
from tremula.base.types import BOOL


class Blend(Vertex):
    """y = x / 2 + shift, with x repeated as often as y needs; state is constant."""

    x: Input[Vector[float32]]
    y: Output[Vector[float32]]
    shift: float32

    def compute(self):
        n = len(self.x)
        for i in range(len(self.y)):
            if n == 0:
                self.y[i] = self.shift
            else:
                self.y[i] = self.x[i % n] * float32(0.5) + self.shift

    def cycles(v, chip):
        return 5 + 2 * v.sizes["y"]


def blend(fields, state):
    x, y = fields["x"], fields["y"]
    for i in range(len(y)):
        half_x = x[i % len(x)] * np.float32(0.5) if len(x) else np.float32(0)
        y[i] = half_x + np.float32(state["shift"])


class Collect(Vertex):
    """total += everything in rows; true if the total is even."""

    rows: Vector[Input[Vector[int32]]]
    total: InOut[int32]

    def compute(self):
        for row in self.rows:
            for value in row:
                self.total = self.total + value
        return (self.total & 1) == 0

    def cycles(v, chip):
        return 7 + v.sizes["rows"]


def collect(fields, _):
    total = int(fields["total"][0]) + sum(int(value) for row in fields["rows"] for value in row)
    total = (total + 2**31) % 2**32 - 2**31
    fields["total"][0] = total
    return total % 2 == 0


class Mirror(Vertex):
    """x = centre - x, in halves."""

    x: InOut[Vector[half]]
    centre: Input[half]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] = self.centre - self.x[i]

    def cycles(v, chip):
        return 3 + v.sizes["x"]


def mirror(fields, _):
    fields["x"][:] = fields["centre"][0] - fields["x"]


class Mark(Vertex):
    """flags[i] = bytes[i] > calls so far; the count of calls is state that persists."""

    bytes: Input[Vector[uint8]]
    flags: Output[Vector[BOOL]]
    calls: uint32

    def compute(self):
        self.calls = self.calls + uint32(1)
        n = len(self.bytes)
        for i in range(len(self.flags)):
            self.flags[i] = n > 0 and self.bytes[i % n] > self.calls
        return self.calls % uint32(3) != 0

    def cycles(v, chip):
        return 9 + v.sizes["flags"]


def mark(fields, state):
    state["calls"] += 1
    data, flags = fields["bytes"], fields["flags"]
    for i in range(len(flags)):
        flags[i] = len(data) > 0 and int(data[i % len(data)]) > state["calls"]
    return state["calls"] % 3 != 0


class Spread(Vertex):
    """out[i] = first + i * step: a list of single elements, and a step from a state vector."""

    first: Input[int32]
    out: Vector[Output[int32]]
    steps: Vector[int32]

    def compute(self):
        for i in range(len(self.out)):
            self.out[i] = self.first + i * self.steps[i % len(self.steps)]

    def cycles(v, chip):
        return 4 + v.sizes["out"]


def spread(fields, state):
    steps = state["steps"]
    for i in range(len(fields["out"])):
        value = int(fields["first"][0]) + i * steps[i % len(steps)]
        fields["out"][i][0] = (value + 2**31) % 2**32 - 2**31


class Countdown(Vertex):
    """n -= 1; go says whether n is still positive, turned round by `inverted`."""

    n: InOut[int32]
    go: Output[BOOL]
    inverted: int32

    def compute(self):
        self.n = self.n - 1
        if self.n > 0:
            self.go = self.inverted == 0
            return True
        self.go = self.inverted != 0
        return False


def countdown(fields, state):
    fields["n"][0] -= 1
    is_left = bool(fields["n"][0] > 0)
    fields["go"][0] = is_left != bool(state["inverted"])
    return is_left


PLAIN = {
    Blend: blend,
    Collect: collect,
    Mirror: mirror,
    Mark: mark,
    Spread: spread,
    Countdown: countdown,
}
