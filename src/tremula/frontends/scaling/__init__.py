"""Unit scaling: values and gradients that start with variance one, and views of their exponents."""
