// A half by its bits, for codelets that build tables or look into the encoding.
#ifndef TREMULA_POPLAR_IEEE_HALF_HPP
#define TREMULA_POPLAR_IEEE_HALF_HPP

#include <cstdint>
#include <cstring>

#include <poplar/HalfFloat.hpp>

namespace poplar {

class IeeeHalf {
 public:
  IeeeHalf() : value_(static_cast<half>(0.0f)) {}
  IeeeHalf(float value) : value_(static_cast<half>(value)) {}

  static IeeeHalf fromBits(std::uint16_t bits) {
    IeeeHalf result;
    std::memcpy(&result.value_, &bits, sizeof bits);
    return result;
  }
  std::uint16_t bit16() const {
    std::uint16_t bits;
    std::memcpy(&bits, &value_, sizeof bits);
    return bits;
  }
  operator float() const { return static_cast<float>(value_); }

 private:
  half value_;
};

}  // namespace poplar

#endif
