"""Functions that Inductor has compiled, stored so that a later process needs no compiler."""
