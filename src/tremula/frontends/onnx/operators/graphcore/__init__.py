"""PopART's own operators, ai.graphcore; importing this enters them into the table."""

from tremula.frontends.onnx.operators.graphcore import maths, nets  # noqa: F401 - enter operators
