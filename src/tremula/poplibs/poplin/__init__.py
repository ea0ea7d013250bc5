"""poplin: matrix products and convolutions through one planner, and linear algebra on top."""

from tremula.poplibs.poplin.mat_mul import mat_mul, mat_mul_grouped

__all__ = ["mat_mul", "mat_mul_grouped"]
