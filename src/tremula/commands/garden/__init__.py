"""`tremula garden` and `tremula serve`: the catalogue of applications, and models behind HTTP."""
