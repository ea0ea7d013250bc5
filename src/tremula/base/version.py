"""The version of Tremula: the one place it is written."""

VERSION = "0.2.0"
