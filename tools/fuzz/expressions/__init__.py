"""Random expressions of weights and samples, written in the words of each front end.

operations.py  the operations, each written once over an algebra, and how a case is evaluated
generate.py    random expressions with the options of a front end
reference.py   the algebra of PyTorch in float64; what training gives, and how far it moves
popxl_run.py, popart_run.py, jax_run.py, keras_run.py
               the algebra of a front end, and a case run with it on tiles or on the host
check.py       the kinds of cases
"""
