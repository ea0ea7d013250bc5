"""Random models with random options: tiles and host against PyTorch in float64.

layers.py     layers that fit any input, as data, and a module made of them
generate.py   random models, machines and options
reference.py  what plain PyTorch computes in float64, and how far it moves by itself
check.py      the kind of case: PopTorch on tiles, on the host and, where present, on a GPU
"""
