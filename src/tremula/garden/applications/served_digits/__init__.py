"""A classifier of digits that answers requests over HTTP."""
