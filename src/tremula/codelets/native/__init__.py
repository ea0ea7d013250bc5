"""What compiled kernels call: arithmetic, memory, vectors and random numbers, in Numba."""
