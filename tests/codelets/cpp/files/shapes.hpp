// Included by everyday.cpp: a codelet's base class with fields of its own.
#pragma once
#include <poplar/Vertex.hpp>

#define IS_SMALL static const bool is_small = true

namespace shapes {
template <class T>
class WithSides : public poplar::Vertex {
public:
  poplar::Input<T> width;
  poplar::Input<T> height;
};
}  // namespace shapes
