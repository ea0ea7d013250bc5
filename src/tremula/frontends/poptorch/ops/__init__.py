"""PopTorch's operations: marks, loops, branches, products, points, CPU layers, custom ones."""
