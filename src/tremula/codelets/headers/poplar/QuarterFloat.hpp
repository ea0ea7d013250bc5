// `quarter`, the 8-bit float: raw bits whose meaning (format and scale) lies in a metadata byte.
#ifndef TREMULA_POPLAR_QUARTER_FLOAT_HPP
#define TREMULA_POPLAR_QUARTER_FLOAT_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include <poplar/HalfFloat.hpp>

struct quarter {
  std::uint8_t bits;
};
static_assert(sizeof(quarter) == 1, "a quarter is one byte");

// A metadata byte as it lies in memory. Bit 7: format (1 is F143, 0 is F152); low 6 bits: signed
// scale. It computes as a number, since codelets take it apart themselves.
struct MetadataType {
  std::uint8_t bits;
  constexpr operator std::uint8_t() const { return bits; }
};

// What a metadata byte means.
struct quarter_metadata {
  enum format : std::uint8_t { f143, f152 };
  format fmt;
  signed char scale;
};

namespace poplar {

using ::MetadataType;
using ::quarter;
using ::quarter_metadata;

// Templates, so that a function of the same name in a codelet file is preferred.
template <class Byte, class = std::enable_if_t<std::is_same_v<Byte, MetadataType>>>
constexpr quarter_metadata unpackMetadata(Byte metadata) {
  const int low = metadata.bits & 0x3f;
  return {metadata.bits & 0x80 ? quarter_metadata::f143 : quarter_metadata::f152,
          static_cast<signed char>(low < 32 ? low : low - 64)};
}
template <class Byte, class = std::enable_if_t<std::is_same_v<Byte, MetadataType>>>
constexpr quarter_metadata unpackMetadata(const Byte *metadata) {
  return unpackMetadata(*metadata);
}
template <class Meaning, class = std::enable_if_t<std::is_same_v<Meaning, quarter_metadata>>>
constexpr MetadataType packMetadata(Meaning metadata) {
  return {static_cast<std::uint8_t>((metadata.fmt == quarter_metadata::f143 ? 0x80 : 0) |
                                    (metadata.scale & 0x3f))};
}

namespace detail {

// Both formats have no infinities and one NaN, 0x80; F143 has bias 8 and F152 has bias 16.
struct QuarterShape {
  int n_mantissa_bits, bias;
};
inline constexpr QuarterShape quarterShape(quarter_metadata::format format) {
  return format == quarter_metadata::f143 ? QuarterShape{3, 8} : QuarterShape{2, 16};
}
inline constexpr std::uint8_t quarterNan = 0x80;
inline constexpr int quarterLargest = 0x7f;

inline float decodeQuarter(std::uint8_t bits, quarter_metadata meaning) {
  if (bits == quarterNan) return __builtin_nanf("");
  const QuarterShape shape = quarterShape(meaning.fmt);
  const int exponent = (bits & 0x7f) >> shape.n_mantissa_bits;
  const int fraction = bits & ((1 << shape.n_mantissa_bits) - 1);
  const int significand = exponent ? fraction | (1 << shape.n_mantissa_bits) : fraction;
  const int power = (exponent ? exponent : 1) - shape.bias - shape.n_mantissa_bits + meaning.scale;
  const float magnitude = std::ldexp(static_cast<float>(significand), power);
  return bits & 0x80 ? -magnitude : magnitude;
}

inline std::uint8_t encodeQuarter(float value, quarter_metadata meaning) {
  if (!std::isfinite(value)) return quarterNan;
  const QuarterShape shape = quarterShape(meaning.fmt);
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::ldexp(std::fabs(static_cast<double>(value)), -meaning.scale);
  if (magnitude == 0) return 0;
  int exponent = std::ilogb(magnitude) + shape.bias;
  if (exponent < 1) exponent = 1;
  // The significand in units of the last place; std::nearbyint rounds to nearest even.
  const int units = static_cast<int>(
      std::nearbyint(std::ldexp(magnitude, shape.n_mantissa_bits + shape.bias - exponent)));
  // Adding rather than joining the fields lets a carry move into the exponent.
  const int bits = ((exponent - 1) << shape.n_mantissa_bits) + units;
  if (bits == 0) return 0;  // there is no negative zero: its code is the NaN
  return bits > quarterLargest ? quarterNan : sign | static_cast<std::uint8_t>(bits);
}

}  // namespace detail

// Conversions take what a metadata byte means, the byte, or where it is.
#define TREMULA_QUARTER(Metadata, meaning)                                                      \
  inline float toFloat(quarter value, Metadata metadata) {                                      \
    return detail::decodeQuarter(value.bits, meaning);                                          \
  }                                                                                             \
  inline half toHalf(quarter value, Metadata metadata) {                                        \
    return static_cast<half>(detail::decodeQuarter(value.bits, meaning));                       \
  }                                                                                             \
  inline quarter toQuarter(float value, Metadata metadata) {                                    \
    return {detail::encodeQuarter(value, meaning)};                                             \
  }                                                                                             \
  inline quarter toQuarter(half value, Metadata metadata) {                                     \
    return {detail::encodeQuarter(static_cast<float>(value), meaning)};                         \
  }                                                                                             \
  inline quarter toQuarter(quarter value, Metadata metadata, Metadata result) {                 \
    return toQuarter(toHalf(value, metadata), result);                                          \
  }
TREMULA_QUARTER(quarter_metadata, metadata)
TREMULA_QUARTER(MetadataType, poplar::unpackMetadata(metadata))
TREMULA_QUARTER(const MetadataType *, poplar::unpackMetadata(metadata))
#undef TREMULA_QUARTER

namespace detail {

// One element of a quarter edge: reads as half, writes any number, and passes raw bits as quarter.
template <class Q>
class QuarterReference {
 public:
  QuarterReference(Q *place, const MetadataType *metadata) : place_(place), metadata_(metadata) {}
  QuarterReference(const QuarterReference &) = default;

  operator half() const { return toHalf(*place_, metadata_); }
  operator quarter() const { return *place_; }
  Q *operator&() const { return place_; }
  const MetadataType *getMetadata() const { return metadata_; }

  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number> ||
                                                   std::is_same_v<Number, half>>>
  const QuarterReference &operator=(Number value) const {
    *place_ = toQuarter(static_cast<float>(value), metadata_);
    return *this;
  }
  const QuarterReference &operator=(quarter raw) const {
    *place_ = raw;
    return *this;
  }
  const QuarterReference &operator=(const QuarterReference &other) const {
    return assign(other);
  }
  QuarterReference &operator=(const QuarterReference &other) {
    assign(other);
    return *this;
  }
  template <class Other>
  const QuarterReference &operator=(const QuarterReference<Other> &other) const {
    return assign(other);
  }

 private:
  template <class Other>
  const QuarterReference &assign(const QuarterReference<Other> &other) const {
    if (other.getMetadata()->bits == metadata_->bits) return *this = static_cast<quarter>(other);
    return *this = static_cast<half>(other);
  }

  Q *place_;
  const MetadataType *metadata_;
};

template <class Q>
class QuarterIterator {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = half;
  using difference_type = std::ptrdiff_t;
  using pointer = Q *;
  using reference = QuarterReference<Q>;

  QuarterIterator(Q *place, const MetadataType *metadata) : place_(place), metadata_(metadata) {}
  reference operator*() const { return {place_, metadata_}; }
  reference operator[](difference_type i) const { return {place_ + i, metadata_}; }
  QuarterIterator &operator++() { return *this += 1; }
  QuarterIterator &operator--() { return *this += -1; }
  QuarterIterator operator++(int) { return {place_++, metadata_}; }
  QuarterIterator operator--(int) { return {place_--, metadata_}; }
  QuarterIterator &operator+=(difference_type n) {
    place_ += n;
    return *this;
  }
  QuarterIterator &operator-=(difference_type n) { return *this += -n; }
  QuarterIterator operator+(difference_type n) const { return {place_ + n, metadata_}; }
  QuarterIterator operator-(difference_type n) const { return {place_ - n, metadata_}; }
  difference_type operator-(QuarterIterator other) const { return place_ - other.place_; }
  bool operator==(QuarterIterator other) const { return place_ == other.place_; }
  bool operator!=(QuarterIterator other) const { return place_ != other.place_; }
  bool operator<(QuarterIterator other) const { return place_ < other.place_; }

 private:
  Q *place_;
  const MetadataType *metadata_;
};

}  // namespace detail
}  // namespace poplar

#endif
