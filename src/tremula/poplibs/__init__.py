"""PopLibs: operations that plan themselves over the tiles and build vertices."""
