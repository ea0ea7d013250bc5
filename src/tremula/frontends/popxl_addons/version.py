"""The version of the add-ons, as applications log it."""

# The commit of a development checkout; None for an installed package, as in Graphcore's.
GIT_COMMIT: str | None = None
