"""PopLibs: operations that plan their own layout over the tiles and build vertices."""
