// Field types of a vertex: scalar edges, vectors, vectors of edges and vector lists.
// Fields are filled in by generated code and never constructed by the codelet itself.
#ifndef TREMULA_POPLAR_IN_OUT_TYPES_HPP
#define TREMULA_POPLAR_IN_OUT_TYPES_HPP

#include <cstddef>
#include <type_traits>

#include <poplar/QuarterFloat.hpp>
#include <poplar/VectorTypes.hpp>

namespace poplar {

template <class T, VectorLayout Layout = VectorLayout::SPAN, unsigned MinAlign = alignof(T),
          bool Interleaved = false>
class Vector;
template <class T, VectorListLayout Layout = VectorListLayout::COMPACT_DELTAN,
          unsigned MinAlign = alignof(T), bool Interleaved = false>
class VectorList;

namespace detail {

// What an element looks like to the codelet: itself, or for quarter a proxy that knows the format.
template <class T>
struct Access {
  using Reference = T &;
  using Iterator = T *;
  static Reference at(T *element, const MetadataType *) { return *element; }
  static Iterator iterator(T *element, const MetadataType *) { return element; }
};
template <class Q>
struct QuarterAccess {
  using Reference = QuarterReference<Q>;
  using Iterator = QuarterIterator<Q>;
  static Reference at(Q *element, const MetadataType *metadata) { return {element, metadata}; }
  static Iterator iterator(Q *element, const MetadataType *metadata) { return {element, metadata}; }
};
template <>
struct Access<quarter> : QuarterAccess<quarter> {};
template <>
struct Access<const quarter> : QuarterAccess<const quarter> {};

template <class T, bool HasSize>
class Span {
  using Element = Access<T>;

 public:
  using value_type = std::remove_cv_t<T>;
  using reference = typename Element::Reference;
  using iterator = typename Element::Iterator;
  using const_iterator = iterator;

  Span(T *first, std::size_t count, const MetadataType *metadata = nullptr)
      : first_(first), count_(count), metadata_(metadata) {}

  reference operator[](std::size_t i) const { return Element::at(first_ + i, metadata_); }
  reference operator*() const { return Element::at(first_, metadata_); }
  T *data() const { return first_; }
  unsigned size() const {
    static_assert(HasSize, "a Vector of this layout has no size(): use SPAN or SHORT_SPAN");
    return static_cast<unsigned>(count_);
  }
  bool empty() const { return size() == 0; }
  iterator begin() const { return Element::iterator(first_, metadata_); }
  iterator end() const { return Element::iterator(first_ + size(), metadata_); }
  iterator cbegin() const { return begin(); }
  iterator cend() const { return end(); }
  const MetadataType *getMetadata() const { return metadata_; }

 private:
  T *first_;
  std::size_t count_;
  const MetadataType *metadata_;
};

template <class T>
class Scalar {
 public:
  explicit Scalar(T *place) : place_(place) {}
  T &operator*() const { return *place_; }
  T *operator->() const { return place_; }
  operator T &() const { return *place_; }

  // An element of a Vector of edges is assigned like the number it is connected to.
  template <class Value, class Number = T, class = std::enable_if_t<!std::is_const_v<Number>>>
  const Scalar &operator=(const Value &value) const {
    *place_ = value;
    return *this;
  }
  Scalar(const Scalar &) = default;
  Scalar &operator=(const Scalar &other) {
    static_assert(!std::is_const_v<T>, "an Input cannot be written");
    const_cast<std::remove_const_t<T> &>(*place_) = *other.place_;
    return *this;
  }

 private:
  T *place_;
};

template <class Q>
class QuarterScalar {
 public:
  QuarterScalar(Q *place, const MetadataType *metadata) : place_(place), metadata_(metadata) {}
  QuarterReference<Q> operator*() const { return {place_, metadata_}; }
  operator half() const { return **this; }
  template <class Value>
  const QuarterScalar &operator=(const Value &value) const {
    **this = value;
    return *this;
  }
  QuarterScalar(const QuarterScalar &) = default;
  QuarterScalar &operator=(const QuarterScalar &other) {
    **this = *other;
    return *this;
  }
  const MetadataType *getMetadata() const { return metadata_; }

 private:
  Q *place_;
  const MetadataType *metadata_;
};

template <class T>
using Edge = std::conditional_t<std::is_same_v<std::remove_const_t<T>, quarter>, QuarterScalar<T>,
                                Scalar<T>>;

// What an Input, Output or InOut of `Field` is, given what may be done to an element.
template <class Field, template <class> class Qualify>
struct EdgeOf : Edge<Qualify<Field>> {
  using Edge<Qualify<Field>>::Edge;
  using Edge<Qualify<Field>>::operator=;
};
template <class T, VectorLayout L, unsigned A, bool I, template <class> class Qualify>
struct EdgeOf<Vector<T, L, A, I>, Qualify> : Span<Qualify<T>, layoutHasSize(L)> {
  using Span<Qualify<T>, layoutHasSize(L)>::Span;
  const EdgeOf *operator->() const { return this; }
};
template <class T, VectorListLayout L, unsigned A, bool I, template <class> class Qualify>
struct EdgeOf<VectorList<T, L, A, I>, Qualify> : Span<const Span<Qualify<T>, true>, true> {
  using SubVector = Span<Qualify<T>, true>;
  using Span<const SubVector, true>::Span;
  const EdgeOf *operator->() const { return this; }
};

template <class T>
using Readable = const T;
template <class T>
using Writable = T;

}  // namespace detail

template <class T>
struct Input : detail::EdgeOf<T, detail::Readable> {
  using detail::EdgeOf<T, detail::Readable>::EdgeOf;
};
template <class T>
struct Output : detail::EdgeOf<T, detail::Writable> {
  using detail::EdgeOf<T, detail::Writable>::EdgeOf;
  using detail::EdgeOf<T, detail::Writable>::operator=;
};
template <class T>
struct InOut : detail::EdgeOf<T, detail::Writable> {
  using detail::EdgeOf<T, detail::Writable>::EdgeOf;
  using detail::EdgeOf<T, detail::Writable>::operator=;
};

// A Vector by itself is state (T a number) or an array of edges (T an edge type).
template <class T, VectorLayout Layout, unsigned MinAlign, bool Interleaved>
class Vector : public detail::Span<T, layoutHasSize(Layout)> {
 public:
  using detail::Span<T, layoutHasSize(Layout)>::Span;
  const Vector *operator->() const { return this; }
};

}  // namespace poplar

#endif
