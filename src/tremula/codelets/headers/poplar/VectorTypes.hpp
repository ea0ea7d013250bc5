// The layouts a vector field may have on the machine. On a host all of them are a plain pointer and
// a count; the layout still decides what a field may do (ONE_PTR knows no size) and what it costs.
#ifndef TREMULA_POPLAR_VECTOR_TYPES_HPP
#define TREMULA_POPLAR_VECTOR_TYPES_HPP

namespace poplar {

enum class VectorLayout {
  NOT_VECTOR,
  SPAN,          // pointer and 32-bit count
  SHORT_SPAN,    // pointer and 11-bit count in one word
  ONE_PTR,       // pointer, no size
  SCALED_PTR32,  // 16-bit pointers in units of 4, 8 and 16 bytes, no size
  SCALED_PTR64,
  SCALED_PTR128,
  COMPACT_PTR,  // the smallest pointer the chip has, no size
};

enum class VectorListLayout {
  DELTAN,
  COMPACT_DELTAN,
  DELTANELEMENTS,
  ONE_PTR,
  SCALED_PTR32,
  SCALED_PTR64,
  SCALED_PTR128,
};

constexpr bool layoutHasSize(VectorLayout layout) {
  return layout == VectorLayout::SPAN || layout == VectorLayout::SHORT_SPAN;
}

}  // namespace poplar

#endif
