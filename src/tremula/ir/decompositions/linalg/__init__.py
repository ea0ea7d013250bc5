"""Linear algebra from factorisations: systems, determinants, singular values, exponentials."""
