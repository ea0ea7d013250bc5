// The codelet of tutorial 3 in C++: the sum of a vector.
#include <poplar/Vertex.hpp>

class SumVertex : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<float>> inputs;
  poplar::Output<float> out;

  bool compute() {
    float total = 0;
    for (float value : inputs) {
      total += value;
    }
    *out = total;
    return true;
  }
};
