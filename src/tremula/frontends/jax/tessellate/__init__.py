"""TessellateIPU: arrays over tiles, primitives and vertices mapped over them."""
