// Everyday codelets: range-for, scalar edges, templates, half, state, layouts, lists, namespaces.
#include "shapes.hpp"

#include <poplar/AvailableVTypes.h>
#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
#include <print.h>

#ifndef __POPC__
#error "only the codelet half of this file is for the codelet compiler"
#include <poplar/Engine.hpp>
#endif

using namespace poplar;

class SumVertex : public Vertex {
public:
  Input<Vector<float>> in;
  Output<float> out;

  bool compute() {
    *out = 0;
    for (const auto &value : in) {
      *out += value;
    }
    return true;
  }
};

// Fields may be private, and scalars convert by themselves.
class Counting : public SupervisorVertex {
  InOut<unsigned> iterations;
  Input<unsigned> limit;

public:
  __attribute__((target("supervisor"))) bool compute() {
    iterations += 1;
    return iterations < limit;
  }
};

// The input and the output may be one tensor; ->size() is asked of the edge itself.
struct Increment : Vertex {
  Input<Vector<int>> x;
  Output<Vector<int>> y;
  auto compute() -> bool {
    for (auto i = 0u; i < x->size(); ++i) y[i] = x[i] + 1;
    return true;
  }
};

namespace shop {

enum class Op { ADD, MULTIPLY };

template <typename T, Op op>
class [[poplar::constraint("elem(*a) != elem(*b)", "region(*a) != region(*out)")]] Binary
    : public Vertex {
public:
  Binary();  // declared only
  Input<Vector<T, VectorLayout::ONE_PTR, 8>> a;
  Input<Vector<T, VectorLayout::SCALED_PTR64, 8, true>> b;
  Output<Vector<T, VectorLayout::SHORT_SPAN>> out;
  const T bias;
  static constexpr bool isExternalCodelet = false;
  IS_SMALL;

  void compute() {
    for (std::size_t i = 0; i != out.size(); ++i)
      out[i] = (op == Op::ADD ? a[i] + b[i] : a[i] * b[i]) + bias;
  }
};

#define INSTANTIATE(T)                   \
  template class Binary<T, Op::ADD>;     \
  template class Binary<T, Op::MULTIPLY>
INSTANTIATE(float);
INSTANTIATE(half);
INSTANTIATE(unsigned);
INSTANTIATE(short);

}  // namespace shop

// State that persists, a constant, and a table stored with the vertex.
class Append : public Vertex {
public:
  InOut<Vector<float>> log;
  Vector<float> table;
  int n_calls;
  const float scale = 2, offset;

  bool compute() {
    log[n_calls] = scale * table[n_calls % table.size()] + offset;
    n_calls++;
    return n_calls < 2;
  }
};

template <class T>
class Rows : public Vertex {
public:
  Vector<Input<Vector<T, VectorLayout::SPAN, 4>>, VectorLayout::ONE_PTR> rows;
  Input<VectorList<T, VectorListLayout::DELTANELEMENTS>> others;
  Vector<Output<T>> sums;
  InOut<VectorList<T, VectorListLayout::COMPACT_DELTAN, 8>> scaled;
  bool compute() {
    for (unsigned i = 0; i < sums.size(); ++i) {
      T total = 0;
      for (auto x : rows[i]) total += x;
      for (unsigned j = 0; j < others[i].size(); ++j) total += others[i][j];
      *sums[i] = total;
      for (auto &x : scaled[i]) x *= 2;
    }
    return sums.size() == others.size();
  }
};
template class Rows<float>;
template class Rows<int>;

// A middle class between Vertex and the codelet, from another header.
class Area : public shapes::WithSides<float> {
public:
  Output<float> area;
  bool compute();
};
bool Area::compute() {
  *area = width * height;
  return true;
}

class Halves : public Vertex {
public:
  Input<Vector<half>> x;
  Output<Vector<half>> y;
  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i) {
      half value = std::sqrt(x[i]) * 0.5_h + std::exp(-x[i]);
      y[i] = std::isnan(value) ? std::numeric_limits<half>::max() : std::fmax(value, half(0.25f));
    }
    return true;
  }
};
