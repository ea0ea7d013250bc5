"""An epidemic's parameters inferred by simulation: approximate Bayesian computation on tiles."""
