// Rarer things: workers and statics, conditional bases, quarter, intrinsics, wild includes.
#include <ipu_intrinsics>
#include <ipu_memory_intrinsics>
#include <ipu_vector_math>
#include <ipudef.h>
#include <poplar/IeeeHalf.hpp>
#include <poplar/Loops.hpp>
#include <poplar/QuarterFloat.hpp>
#include <poplar/StackSizeDefs.hpp>
#include <poplar/Vertex.hpp>

using namespace poplar;

// Worker 0 collects what the other workers leave in memory they share.
class Norm : public MultiVertex {
  static float partial[6];

public:
  Input<Vector<float, VectorLayout::ONE_PTR>> x;
  const unsigned n;
  Output<float> result;
  bool compute(unsigned worker) {
    float sum = 0;
    for (unsigned i = worker; i < n; i += numWorkers()) sum += x[i] * x[i];
    partial[worker] = sum;
    if (worker == 0) {
      *result = std::sqrt(partial[0] + partial[1] + partial[2] + partial[3] + partial[4] + partial[5]);
    }
    return true;
  }
};
float Norm::partial[6] = {-1};

// Two computes are declared and one is defined: the base class says which.
template <typename T, bool useSupervisor>
class Mark : public std::conditional_t<useSupervisor, SupervisorVertex, MultiVertex> {
public:
  Mark();
  Output<Vector<T>> marks;
  void compute();
  void compute(unsigned worker) {
    __builtin_assume(worker < 6);
    marks[worker] = worker + 1;
  }
};
template class Mark<int, false>;

template <bool B>
struct Either : SupervisorVertexIf<B> {
  InOut<int> x;
  void compute() { *x = *x + (B ? 10 : 20); }
};
template struct Either<true>;
template struct Either<false>;

class Vectors : public Vertex {
public:
  Input<Vector<float, VectorLayout::ONE_PTR, 8>> x;
  Output<Vector<float, VectorLayout::ONE_PTR, 8>> y;
  Input<Vector<half, VectorLayout::ONE_PTR, 8>> h;
  Output<Vector<half, VectorLayout::ONE_PTR, 8>> g;
  const unsigned n;
  bool compute() {
    const float2 *in = reinterpret_cast<const float2 *>(&x[0]);
    float2 *out = reinterpret_cast<float2 *>(&y[0]);
    const float2 two = {2.0f, 2.0f}, limit = {3.0f, 3.0f};
    for (rptsize_t i = 0; i < n / 2; ++i) {
      float2 v = ipu::load_postinc(&in, 1);
      ipu::store_postinc(&out, ipu::fmin(ipu::fma(v, two, v), limit), 1);
    }
    const half4 *from = reinterpret_cast<const half4 *>(h.data());
    half4 *to = reinterpret_cast<half4 *>(g.data());
    *to = half4_fmax(ipu::exp(*from) * *from, *from);
    return ipu::sum(two) == 4;
  }
};

class Eighths : public Vertex {
public:
  Input<Vector<quarter>> a;
  Output<Vector<quarter>> b;
  Output<Vector<half>> values;
  InOut<quarter> total;
  Output<Vector<unsigned char>> bits;
  bool compute() {
    float sum = 0;
    for (unsigned i = 0; i < a.size(); ++i) {
      values[i] = a[i];
      b[i] = a[i];
      sum += a[i];
      bits[i] = toQuarter(values[i], b.getMetadata()).bits;
    }
    *total = sum;
    return unpackMetadata(a.getMetadata()).fmt == quarter_metadata::f143;
  }
};

// A full specialisation of a template is a codelet of its own.
template <class T>
struct Pick : Vertex {
  Output<T> out;
  void compute() { *out = 1; }
};
template <>
struct Pick<char> : public Vertex {
  Output<char> out;
  const char letter;
  void compute() { *out = letter; }
};
template struct Pick<long long>;

class BitsOfHalf : public Vertex {
public:
  Input<float> x;
  Output<unsigned short> bits;
  bool compute() {
    *bits = IeeeHalf(x).bit16();
    return float(IeeeHalf::fromBits(*bits)) == float(half(*x));
  }
};
