"""`tremula run --port`: names that scripts of a few years ago use and libraries no longer have."""
