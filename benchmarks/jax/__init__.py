"""The figures of JAX: speed, compile time, tile_map, primitives, eigenvectors."""
