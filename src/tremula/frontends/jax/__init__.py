"""JAX: jaxprs translated to captured steps, one primitive after another."""

from tremula.base.requirements import require

require("tremula.jax", "jax")
