"""Running a captured step: sessions on the host, tile programs, their cache and their clock."""
