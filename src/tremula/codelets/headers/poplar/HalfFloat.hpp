// `half`, the machine's 16-bit float, in the global namespace; every operation rounds to 16 bits.
#ifndef TREMULA_POPLAR_HALF_FLOAT_HPP
#define TREMULA_POPLAR_HALF_FLOAT_HPP

#include <cmath>
#include <limits>
#include <type_traits>

#if defined(__aarch64__) && __GNUC__ < 13
// C++ has no _Float16 there yet, and __fp16 would compute in float; this is the same type as in C.
typedef float half __attribute__((mode(HF)));
#else
typedef _Float16 half;
#endif

inline constexpr half operator""_h(long double value) { return static_cast<half>(value); }
inline constexpr half operator""_h(unsigned long long value) { return static_cast<half>(value); }

namespace poplar {
using ::half;
}

namespace std {

template <>
struct is_floating_point<half> : true_type {};
template <>
struct is_floating_point<const half> : true_type {};

#ifndef __STDCPP_FLOAT16_T__
template <>
class numeric_limits<half> {
 public:
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr bool has_signaling_NaN = true;
  static constexpr bool is_iec559 = true;
  static constexpr bool is_bounded = true;
  static constexpr bool is_modulo = false;
  static constexpr bool traps = false;
  static constexpr bool tinyness_before = false;
  static constexpr float_denorm_style has_denorm = denorm_present;
  static constexpr bool has_denorm_loss = false;
  static constexpr float_round_style round_style = round_to_nearest;
  static constexpr int digits = 11;
  static constexpr int digits10 = 3;
  static constexpr int max_digits10 = 5;
  static constexpr int radix = 2;
  static constexpr int min_exponent = -13;
  static constexpr int min_exponent10 = -4;
  static constexpr int max_exponent = 16;
  static constexpr int max_exponent10 = 4;
  static constexpr half min() noexcept { return static_cast<half>(6.103515625e-05f); }
  static constexpr half max() noexcept { return static_cast<half>(65504.0f); }
  static constexpr half lowest() noexcept { return static_cast<half>(-65504.0f); }
  static constexpr half epsilon() noexcept { return static_cast<half>(9.765625e-04f); }
  static constexpr half round_error() noexcept { return static_cast<half>(0.5f); }
  static constexpr half denorm_min() noexcept { return static_cast<half>(5.9604644775390625e-08f); }
  static constexpr half infinity() noexcept { return static_cast<half>(__builtin_inff()); }
  static constexpr half quiet_NaN() noexcept { return static_cast<half>(__builtin_nanf("")); }
  static constexpr half signaling_NaN() noexcept { return static_cast<half>(__builtin_nansf("")); }
};
template <>
class numeric_limits<const half> : public numeric_limits<half> {};
#endif

// Without these a call with a half is ambiguous between float, double and long double.
#define TREMULA_HALF_1(name) \
  inline half name(half x) { return static_cast<half>(std::name(static_cast<float>(x))); }
#define TREMULA_HALF_2(name)                                                              \
  inline half name(half x, half y) {                                                      \
    return static_cast<half>(std::name(static_cast<float>(x), static_cast<float>(y)));    \
  }
#define TREMULA_HALF_TEST(name) \
  inline bool name(half x) { return std::name(static_cast<float>(x)); }
TREMULA_HALF_1(abs) TREMULA_HALF_1(fabs) TREMULA_HALF_1(sqrt) TREMULA_HALF_1(cbrt)
TREMULA_HALF_1(exp) TREMULA_HALF_1(exp2) TREMULA_HALF_1(expm1)
TREMULA_HALF_1(log) TREMULA_HALF_1(log2) TREMULA_HALF_1(log10) TREMULA_HALF_1(log1p)
TREMULA_HALF_1(sin) TREMULA_HALF_1(cos) TREMULA_HALF_1(tan)
TREMULA_HALF_1(asin) TREMULA_HALF_1(acos) TREMULA_HALF_1(atan)
TREMULA_HALF_1(sinh) TREMULA_HALF_1(cosh) TREMULA_HALF_1(tanh)
TREMULA_HALF_1(asinh) TREMULA_HALF_1(acosh) TREMULA_HALF_1(atanh)
TREMULA_HALF_1(erf) TREMULA_HALF_1(erfc) TREMULA_HALF_1(tgamma) TREMULA_HALF_1(lgamma)
TREMULA_HALF_1(floor) TREMULA_HALF_1(ceil) TREMULA_HALF_1(trunc) TREMULA_HALF_1(round)
TREMULA_HALF_1(rint) TREMULA_HALF_1(nearbyint) TREMULA_HALF_1(logb)
TREMULA_HALF_2(pow) TREMULA_HALF_2(fmod) TREMULA_HALF_2(remainder) TREMULA_HALF_2(atan2)
TREMULA_HALF_2(fmax) TREMULA_HALF_2(fmin) TREMULA_HALF_2(fdim) TREMULA_HALF_2(hypot)
TREMULA_HALF_2(copysign)
TREMULA_HALF_TEST(isnan) TREMULA_HALF_TEST(isinf) TREMULA_HALF_TEST(isfinite)
TREMULA_HALF_TEST(isnormal) TREMULA_HALF_TEST(signbit)
#undef TREMULA_HALF_1
#undef TREMULA_HALF_2
#undef TREMULA_HALF_TEST

inline half fma(half x, half y, half z) {
  // The product of two halves is exact in float; one addition in double keeps the single rounding.
  return static_cast<half>(static_cast<double>(x) * static_cast<double>(y) + static_cast<double>(z));
}
inline long lround(half x) { return std::lround(static_cast<float>(x)); }
inline half ldexp(half x, int n) { return static_cast<half>(std::ldexp(static_cast<float>(x), n)); }

}  // namespace std

#endif
