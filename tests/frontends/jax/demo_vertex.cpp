// A vertex for the tests of tile_map: every second element scaled, and its negative.
#include <poplar/Vertex.hpp>

using namespace poplar;

template <typename T> class DemoVertex : public Vertex {
public:
  Input<Vector<T>> x;
  Input<Vector<T>> constant_scale;
  float scale_value;
  Output<Vector<T>> out0;
  Output<Vector<T>> out1;
  Output<Vector<T>> tmp;

  bool compute() {
    for (unsigned i = 0; i < x.size(); ++i)
      tmp[i] = x[i] * constant_scale[i] * scale_value;
    for (unsigned i = 0; i < out0.size(); ++i) {
      out0[i] = tmp[2 * i + 1];
      out1[i] = -tmp[2 * i + 1];
    }
    return true;
  }
};

template class DemoVertex<float>;
