// The AdderVertex of the Adder program in C++.
#include <poplar/Vertex.hpp>

using namespace poplar;

class AdderVertex : public Vertex {
public:
  Input<float> x;
  Input<Vector<float>> y;
  Output<float> z;
  float bias;

  bool compute() {
    float sum = *x + bias;
    for (unsigned i = 0; i < y.size(); ++i) {
      sum += y[i];
    }
    *z = sum;
    return true;
  }
};
