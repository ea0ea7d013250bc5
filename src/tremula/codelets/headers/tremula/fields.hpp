// What each field type is, as data, and how a row of a vertex table fills it.
#ifndef TREMULA_FIELDS_HPP
#define TREMULA_FIELDS_HPP

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include <poplar/Vertex.hpp>

namespace tremula {

using poplar::VectorLayout;
using poplar::VectorListLayout;

template <class T> inline constexpr const char *type_name = nullptr;
template <> inline constexpr const char *type_name<bool> = "BOOL";
template <> inline constexpr const char *type_name<char> = "CHAR";
template <> inline constexpr const char *type_name<signed char> = "SIGNED_CHAR";
template <> inline constexpr const char *type_name<unsigned char> = "UNSIGNED_CHAR";
template <> inline constexpr const char *type_name<short> = "SHORT";
template <> inline constexpr const char *type_name<unsigned short> = "UNSIGNED_SHORT";
template <> inline constexpr const char *type_name<int> = "INT";
template <> inline constexpr const char *type_name<unsigned> = "UNSIGNED_INT";
// int64_t is `long` on a 64-bit host and `long long` on a tile.
template <> inline constexpr const char *type_name<long> = "LONGLONG";
template <> inline constexpr const char *type_name<long long> = "LONGLONG";
template <> inline constexpr const char *type_name<unsigned long> = "UNSIGNED_LONGLONG";
template <> inline constexpr const char *type_name<unsigned long long> = "UNSIGNED_LONGLONG";
template <> inline constexpr const char *type_name<half> = "HALF";
template <> inline constexpr const char *type_name<float> = "FLOAT";
template <> inline constexpr const char *type_name<quarter> = "QUARTER";
template <> inline constexpr const char *type_name<MetadataType> = "QUARTER_METADATA";

template <class T>
constexpr const char *element_type_name() {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_enum_v<Plain>)
    return type_name<std::underlying_type_t<Plain>>;
  else
    return type_name<Plain>;
}
template <class T>
inline constexpr bool is_element = element_type_name<T>() != nullptr;
template <class T>
inline constexpr bool is_quarter = std::is_same_v<std::remove_cv_t<T>, quarter>;

constexpr const char *layout_name(VectorLayout layout) {
  constexpr const char *names[] = {"NOT_VECTOR", "SPAN", "SHORT_SPAN", "ONE_PTR", "SCALED_PTR32",
                                   "SCALED_PTR64", "SCALED_PTR128", "COMPACT_PTR"};
  return names[static_cast<int>(layout)];
}
constexpr const char *layout_name(VectorListLayout layout) {
  constexpr const char *names[] = {"DELTAN", "COMPACT_DELTAN", "DELTANELEMENTS", "ONE_PTR",
                                   "SCALED_PTR32", "SCALED_PTR64", "SCALED_PTR128"};
  return names[static_cast<int>(layout)];
}

// One row being filled: reads its columns in order and hands out scratch space for sub-vectors.
struct Row {
  std::uint8_t *arena;
  const std::int64_t *columns;
  std::int64_t row;
  std::uint8_t *scratch;
  int next_column = 0;

  const std::int64_t *column() { return reinterpret_cast<const std::int64_t *>(columns[next_column++]); }
  template <class T>
  T *element(std::int64_t address) const {
    return reinterpret_cast<T *>(arena) + address;
  }
  template <class T>
  const poplar::MetadataType *metadata() {
    if constexpr (is_quarter<T>)
      return reinterpret_cast<const poplar::MetadataType *>(arena + column()[row]);
    else
      return nullptr;
  }
  template <class T>
  T *take(std::int64_t count) {
    T *place = reinterpret_cast<T *>(scratch);
    scratch += count * sizeof(T);
    return place;
  }
};

// What a field without a layout reports, as Python codelets do: it costs nothing to unpack.
constexpr const char *scalar_layout = "SPAN";

template <class T>
struct ScalarField {
  static constexpr bool is_supported = is_element<T>;
  static constexpr int n_columns = 1 + is_quarter<T>;
  static constexpr const char *kind = "SCALAR", *layout = scalar_layout;
  static constexpr unsigned min_align = alignof(T);
  static constexpr bool is_interleaved = false;
  using Element = T;

  template <class F>
  static void fill(F *place, Row &row) {
    T *element = row.element<T>(row.column()[row.row]);
    if constexpr (is_quarter<T>)
      new (place) F(element, row.metadata<T>());
    else
      new (place) F(element);
  }
};

template <class T, VectorLayout L, unsigned A, bool I>
struct VectorField {
  static constexpr bool is_supported = is_element<T>;
  static constexpr int n_columns = 2 + is_quarter<T>;
  static constexpr const char *kind = "VECTOR", *layout = layout_name(L);
  static constexpr unsigned min_align = A;
  static constexpr bool is_interleaved = I;
  using Element = T;

  template <class F>
  static void fill(F *place, Row &row) {
    T *first = row.element<T>(row.column()[row.row]);
    const std::int64_t length = row.column()[row.row];
    new (place) F(first, length, row.metadata<T>());
  }
};

// Vector<Input<Vector<T>>> and Input<VectorList<T>>: `Sub` is what one sub-vector is.
template <class T, class Sub, unsigned A, bool I>
struct VectorListField {
  static constexpr bool is_supported = is_element<T>;
  static constexpr int n_columns = 3 + is_quarter<T>;
  static constexpr const char *kind = "VECTOR_LIST";
  static constexpr unsigned min_align = A;
  static constexpr bool is_interleaved = I;
  using Element = T;

  static std::size_t n_scratch_bytes(const std::int64_t *start, std::int64_t row) {
    return (start[row + 1] - start[row]) * sizeof(Sub);
  }
  template <class F>
  static void fill(F *place, Row &row) {
    const std::int64_t *start = row.column(), *offset = row.column(), *length = row.column();
    const poplar::MetadataType *metadata = row.metadata<T>();
    const std::int64_t begin = start[row.row], count = start[row.row + 1] - begin;
    Sub *subs = row.take<Sub>(count);
    for (std::int64_t i = 0; i < count; ++i)
      new (subs + i) Sub(row.element<T>(offset[begin + i]), length[begin + i], metadata);
    new (place) F(subs, count, metadata);
  }
};

template <class T, class Sub, VectorLayout L>
struct ScalarListField {
  static constexpr bool is_supported = is_element<T>;
  static constexpr int n_columns = 2 + is_quarter<T>;
  static constexpr const char *kind = "SCALAR_LIST", *layout = layout_name(L);
  static constexpr unsigned min_align = alignof(T);
  static constexpr bool is_interleaved = false;
  using Element = T;

  static std::size_t n_scratch_bytes(const std::int64_t *start, std::int64_t row) {
    return (start[row + 1] - start[row]) * sizeof(Sub);
  }
  template <class F>
  static void fill(F *place, Row &row) {
    const std::int64_t *start = row.column(), *offset = row.column();
    const poplar::MetadataType *metadata = row.metadata<T>();
    const std::int64_t begin = start[row.row], count = start[row.row + 1] - begin;
    Sub *subs = row.take<Sub>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      T *element = row.element<T>(offset[begin + i]);
      if constexpr (is_quarter<T>)
        new (subs + i) Sub(element, metadata);
      else
        new (subs + i) Sub(element);
    }
    new (place) F(subs, count, metadata);
  }
};

// State: copied in before and out after, so that writes persist in the column.
template <class F>
struct StateField {
  using Element = std::remove_cv_t<F>;
  static constexpr bool is_supported = is_element<Element> && !is_quarter<Element>;
  static constexpr int n_columns = 1;
  static constexpr const char *kind = "STATE", *direction = "", *layout = scalar_layout;
  static constexpr unsigned min_align = alignof(F);
  static constexpr bool is_interleaved = false;

  static Element *value(Row &row) {
    return reinterpret_cast<Element *>(row.columns[row.next_column++]) + row.row;
  }
  static void fill(Element *place, Row &row) { std::memcpy(place, value(row), sizeof(Element)); }
  static void keep(const Element *place, Row &row) {
    std::memcpy(value(row), place, sizeof(Element));
  }
};

template <class T, VectorLayout L, unsigned A, bool I>
struct StateVectorField {
  static constexpr bool is_supported = is_element<T> && !is_quarter<T>;
  static constexpr int n_columns = 2;
  static constexpr const char *kind = "STATE_VECTOR", *direction = "", *layout = layout_name(L);
  static constexpr unsigned min_align = A;
  static constexpr bool is_interleaved = I;
  using Element = T;

  template <class F>
  static void fill(F *place, Row &row) {
    const std::int64_t *start = row.column();
    T *values = reinterpret_cast<T *>(row.columns[row.next_column++]);
    new (place) F(values + start[row.row], start[row.row + 1] - start[row.row]);
  }
};

template <class F>
struct Field : StateField<F> {};
template <class T, VectorLayout L, unsigned A, bool I>
struct Field<poplar::Vector<T, L, A, I>> : StateVectorField<T, L, A, I> {};

#define TREMULA_EDGE(Edge)                                                                       \
  template <class T>                                                                             \
  struct Field<poplar::Edge<T>> : ScalarField<T> {                                               \
    static constexpr const char *direction = #Edge;                                              \
  };                                                                                             \
  template <class T, VectorLayout L, unsigned A, bool I>                                         \
  struct Field<poplar::Edge<poplar::Vector<T, L, A, I>>> : VectorField<T, L, A, I> {             \
    static constexpr const char *direction = #Edge;                                              \
  };                                                                                             \
  template <class T, VectorListLayout L, unsigned A, bool I>                                     \
  struct Field<poplar::Edge<poplar::VectorList<T, L, A, I>>>                                     \
      : VectorListField<T, typename poplar::Edge<poplar::VectorList<T, L, A, I>>::SubVector, A,  \
                        I> {                                                                     \
    static constexpr const char *direction = #Edge, *layout = layout_name(L);                    \
  };                                                                                             \
  template <class T, VectorLayout L, unsigned A, bool I, VectorLayout L1, unsigned A1, bool I1>  \
  struct Field<poplar::Vector<poplar::Edge<poplar::Vector<T, L, A, I>>, L1, A1, I1>>             \
      : VectorListField<T, poplar::Edge<poplar::Vector<T, L, A, I>>, A, I> {                     \
    static constexpr const char *direction = #Edge, *layout = layout_name(L);                    \
  };                                                                                             \
  template <class T, VectorLayout L1, unsigned A1, bool I1>                                      \
  struct Field<poplar::Vector<poplar::Edge<T>, L1, A1, I1>>                                      \
      : ScalarListField<T, poplar::Edge<T>, L1> {                                                \
    static constexpr const char *direction = #Edge;                                              \
  };
TREMULA_EDGE(Input)
TREMULA_EDGE(Output)
TREMULA_EDGE(InOut)
#undef TREMULA_EDGE

}  // namespace tremula

#endif
