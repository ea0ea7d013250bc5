"""The words of the catalogue: domains, frameworks, and what applications teach."""

DOMAINS = (
    "vision", "language", "speech", "multimodal", "graphs", "chemistry", "physics", "biology",
    "finance", "probabilistic", "recommendation", "control", "linear algebra",
)  # fmt: skip

FRAMEWORKS = (
    "poplar", "poplibs", "poptorch", "poptorch-geometric", "keras", "jax", "popart", "popxl",
    "optimum", "onnx",
)  # fmt: skip

# Technique → what it is, in one line.
TECHNIQUES = {
    "pipelining": "layers on several chips, each working on another micro-batch",
    "replication": "copies of the model that share the work and sum their gradients",
    "gradient accumulation": "gradients of several micro-batches summed before an update",
    "replicated tensor sharding": "each replica keeps a part of a tensor that all have in common",
    "recomputation": "activations computed again in the backward pass instead of kept",
    "off-chip states": "weights or optimiser states in memory beside the chip",
    "serialised embeddings": "large products and tables used a slice at a time",
    "packing": "several short samples in one row of fixed size",
    "loss scaling": "a factor that keeps half-precision gradients from vanishing",
    "stochastic rounding": "rounding up or down by chance, so that small updates count",
    "overlapped io": "data moved while other tiles compute",
    "8-bit io": "inputs sent as bytes and scaled on the chip",
    "custom ops": "operations with their own vertices",
    "phased execution": "parts of a model loaded, run and stored one after another",
    "tensor parallelism": "one product spread over several chips",
    "serving": "a compiled model that answers requests",
    "device iterations": "many steps per call, without the host",
    "halo exchange": "neighbouring tiles swap the edges of their blocks",
    "on-chip loops": "loops whose end is decided on the chip",
    "random numbers": "draws from the generators of the tiles",
    "load balance": "uneven work spread evenly over tiles",
    "all-to-all": "every chip sends a part to every other",
    "low precision": "numbers of 16 or 8 bits",
    "sparsity": "products that skip zeros",
    "on-device generation": "tokens drawn one after another without the host",
    "static graphs": "data of changing size padded to fixed shapes",
    "custom placement": "the program says which tile holds what",
}
