"""Matrix products and convolutions: one planner, its vertices, and the functions on top."""
