"""Codelets whose annotations are text."""

from __future__ import annotations

from tremula.base.types import float32
from tremula.codelets import Input, Output, Vector, Vertex


class Late(Vertex):
    x: Input[Vector[float32, "ONE_PTR", 8]]  # noqa: F821, UP037
    out: Output[float32]

    def compute(self):
        self.out = self.x[0]


class Later(Late):
    scale: float32


def make(element):
    class Inner(Vertex):
        x: Input[Vector[element]]
        n: float32

        def compute(self):
            self.n = len(self.x)

    return Inner
