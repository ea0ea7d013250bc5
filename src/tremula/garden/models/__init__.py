"""Models and data sets that applications, examples, tests and benchmarks share."""
