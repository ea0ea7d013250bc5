"""JAX: jaxprs translated to captured steps, one primitive after another."""
