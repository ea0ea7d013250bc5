"""A plug-in of JAX: the platform "ipu", whose devices are modelled chips (Tremula).

For a checkout on PYTHONPATH: where Tremula is installed, its metadata names the plug-in.
"""

from tremula.frontends.plugin import initialize as initialize
