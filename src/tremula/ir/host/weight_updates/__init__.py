"""Weight updates on a GPU as generated kernels: one launch for all weights of a group."""
