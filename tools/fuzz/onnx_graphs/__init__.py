"""Random ONNX graphs: tiles and host against the reference evaluator that onnx brings.

generate.py  nodes of random operators, as data, and the model made of them
check.py     the kind of case
"""
