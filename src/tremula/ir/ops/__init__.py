"""Operations of our own in a captured step: marks, loops, branches, host code, custom ones."""
