"""Stencils: programs of others that were measured, cut and connected as theirs."""
