"""A C++ codelet file of as many vertices as the largest files of PopLibs have."""

import tremula as tr

_OPERATIONS = (
    "ADD", "SUB", "MUL", "DIV", "MIN", "MAX", "EQ", "NE", "LT", "LE", "GT", "GE", "AVERAGE",
    "DIFFERENCE", "SECOND",
)  # fmt: skip
_TYPES = (
    "float", "half", "int", "unsigned int", "short", "unsigned short", "char", "unsigned char",
    "long long", "unsigned long long",
)  # fmt: skip

_HEAD = """
#include <algorithm>
#include <cmath>
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
using namespace poplar;
namespace many {
enum class Operation { %s };
template <Operation op, class T>
inline T apply(T a, T b) {
  if constexpr (op == Operation::ADD) return a + b;
  else if constexpr (op == Operation::SUB) return a - b;
  else if constexpr (op == Operation::MUL) return a * b;
  else if constexpr (op == Operation::DIV) return b == T(0) ? T(0) : T(a / b);
  else if constexpr (op == Operation::MIN) return a < b ? a : b;
  else if constexpr (op == Operation::MAX) return a > b ? a : b;
  else if constexpr (op == Operation::EQ) return T(a == b);
  else if constexpr (op == Operation::NE) return T(a != b);
  else if constexpr (op == Operation::LT) return T(a < b);
  else if constexpr (op == Operation::LE) return T(a <= b);
  else if constexpr (op == Operation::GT) return T(a > b);
  else if constexpr (op == Operation::GE) return T(a >= b);
  else if constexpr (op == Operation::AVERAGE) return (a + b) / T(2);
  else if constexpr (op == Operation::DIFFERENCE) return a < b ? b - a : a - b;
  else return b;
}
template <Operation op, class T>
class ScalarInPlace : public Vertex {
public:
  InOut<Vector<T, VectorLayout::SPAN, 8>> data;
  const T value;
  bool compute() {
    for (unsigned i = 0; i < data.size(); ++i) data[i] = apply<op, T>(data[i], value);
    return true;
  }
};
template <Operation op, class T>
class Scalar : public MultiVertex {
public:
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> data;
  Output<Vector<T, VectorLayout::ONE_PTR, 8>> out;
  const unsigned n;
  const T value;
  bool compute(unsigned worker) {
    for (unsigned i = worker; i < n; i += numWorkers()) out[i] = apply<op, T>(data[i], value);
    return true;
  }
};
template <Operation op, class T>
class Both : public MultiVertex {
public:
  Input<Vector<T, VectorLayout::SPAN>> first, second;
  Output<Vector<T, VectorLayout::ONE_PTR>> out;
  bool compute(unsigned worker) {
    for (unsigned i = worker; i < first.size(); i += numWorkers())
      out[i] = apply<op, T>(first[i], second[i]);
    return true;
  }
};
template <Operation op, class T>
class Rows : public Vertex {
public:
  Vector<InOut<Vector<T>>> rows;
  Input<Vector<T>> bias;
  bool compute() {
    for (unsigned r = 0; r < rows.size(); ++r)
      for (unsigned i = 0; i < rows[r].size(); ++i)
        rows[r][i] = apply<op, T>(rows[r][i], bias[i %% bias.size()]);
    return true;
  }
};
template <Operation op, class T>
class Fold : public Vertex {
public:
  Input<VectorList<T, VectorListLayout::DELTAN>> parts;
  Output<T> total;
  bool compute() {
    T result = T(0);
    for (unsigned p = 0; p < parts.size(); ++p)
      for (unsigned i = 0; i < parts[p].size(); ++i) result = apply<op, T>(result, parts[p][i]);
    *total = result;
    return true;
  }
};
"""
_CLASSES = ("ScalarInPlace", "Scalar", "Both", "Rows", "Fold")


def some_of_many(graph: tr.Graph) -> tr.Program:
    """A vertex of every operation, each on a separate tile."""
    data = graph.add_variable(tr.FLOAT, [len(_OPERATIONS), 8], "data")
    compute_set = graph.add_compute_set("some")
    for tile, operation in enumerate(_OPERATIONS):
        graph.set_tile_mapping(data[tile], tile)
        name = f"many::ScalarInPlace<many::Operation::{operation},float>"
        graph.add_vertex(compute_set, name, {"data": data[tile], "value": 3.0}, tile=tile)
    return tr.Execute(compute_set)


def many_vertices_source() -> str:
    """Five templates over 15 operations and 10 types."""
    lines = [_HEAD % ", ".join(_OPERATIONS)]
    lines += [
        f"template class {name}<Operation::{operation}, {type}>;"
        for name in _CLASSES
        for operation in _OPERATIONS
        for type in _TYPES
    ]
    return "\n".join([*lines, "}"])
