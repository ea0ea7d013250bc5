"""Random tile programs: all control flow, element types, mappings and chips, under strict mode.

views.py      a view of a variable, as data: for a Tensor and for NumPy indices
generate.py   random legal programs
reference.py  what a program computes: an interpreter of cases, on NumPy arrays
build.py      the program on a Graph
check.py      oracles: values, costs, reports
"""
