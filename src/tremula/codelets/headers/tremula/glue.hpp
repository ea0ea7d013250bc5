// Generated code uses this: describes a vertex class as text, and runs rows of a vertex table.
#ifndef TREMULA_GLUE_HPP
#define TREMULA_GLUE_HPP

#include <tremula/fields.hpp>

#include <cstdio>

namespace tremula {

using Emit = void (*)(const char *line);

template <class V>
inline constexpr bool is_multi = std::is_base_of_v<poplar::MultiVertex, V>;
template <class V>
inline constexpr bool is_supervisor = std::is_base_of_v<poplar::SupervisorVertex, V>;

// The base class decides which compute is meant: a class may declare both and define one.
template <class V>
auto result_of(V *vertex) {
  if constexpr (is_multi<V>)
    return static_cast<decltype(vertex->V::compute(0u)) *>(nullptr);
  else
    return static_cast<decltype(vertex->V::compute()) *>(nullptr);
}
template <class V>
inline constexpr bool returns_bool =
    !std::is_void_v<std::remove_pointer_t<decltype(result_of<V>(nullptr))>>;

template <class V, class = void>
struct has_compute : std::false_type {};
template <class V>
struct has_compute<V, std::enable_if_t<!is_multi<V>, std::void_t<decltype(std::declval<V &>().compute())>>>
    : std::true_type {};
template <class V>
struct has_compute<V, std::enable_if_t<is_multi<V>, std::void_t<decltype(std::declval<V &>().compute(0u))>>>
    : std::true_type {};
template <class V>
inline constexpr bool is_codelet =
    std::is_base_of_v<poplar::detail::AnyVertex, V> && has_compute<V>::value;

// Qualified calls: a virtual one would look for a table that a raw object does not have.
template <class V, class... Worker>
inline bool call(V *vertex, Worker... worker) {
  if constexpr (returns_bool<V>) return static_cast<bool>(vertex->V::compute(worker...));
  else return vertex->V::compute(worker...), true;
}

#ifdef TREMULA_COUNTED
extern "C" __attribute__((visibility("hidden"))) std::int64_t *tremula_counter();

// Kept apart, so that no instruction of the code around it is counted.
template <class V, class... Worker>
__attribute__((noinline)) bool counted_call(V *vertex, Worker... worker) {
  return call(vertex, worker...);
}
template <class V, class... Worker>
inline std::int64_t count(V *vertex, bool &all_true, Worker... worker) {
  std::int64_t *counter = tremula_counter();
  const std::int64_t before = *counter;
  all_true &= counted_call(vertex, worker...);
  return *counter - before;
}
#endif

template <class V>
inline bool run(V *vertex, std::int64_t *cycles, std::int64_t row) {
  bool all_true = true;
#ifdef TREMULA_COUNTED
  std::int64_t longest = 0;
  if constexpr (is_multi<V>) {
    for (unsigned worker = CTXT_WORKERS; worker-- > 0;)
      longest = std::max(longest, count(vertex, all_true, worker));
    longest *= CTXT_WORKERS;  // they issue in turn
  } else {
    longest = count(vertex, all_true);
  }
  cycles[row] = longest;
#else
  // Worker 0 last: codelets let it collect what the others left in shared memory.
  if constexpr (is_multi<V>)
    for (unsigned worker = CTXT_WORKERS; worker-- > 0;) all_true &= call(vertex, worker);
  else
    all_true = call(vertex);
#endif
  return all_true;
}

struct Describe {
  Emit emit;
  template <class F>
  void operator()(const char *name, F &) {
    static_assert(Field<std::remove_const_t<F>>::is_supported, "TREMULA-FIELD");
    using Meaning = Field<std::remove_const_t<F>>;
    if constexpr (Meaning::is_supported) {
      char line[512];
      std::snprintf(line, sizeof line, "field\t%s\t%s\t%s\t%s\t%s\t%u\t%d\t%d", name, Meaning::kind,
                    Meaning::direction, element_type_name<typename Meaning::Element>(),
                    Meaning::layout, Meaning::min_align, int(Meaning::is_interleaved),
                    int(std::is_const_v<F>));
      emit(line);
    }
  }
};

struct Fill {
  Row row;
  template <class F>
  void operator()(const char *, F &field) {
    using Plain = std::remove_const_t<F>;
    if constexpr (Field<Plain>::is_supported)
      Field<Plain>::fill(const_cast<Plain *>(&field), row);
  }
};

template <class F, class = void>
struct KeepsState : std::false_type {};
template <class F>
struct KeepsState<F, std::void_t<decltype(&Field<F>::keep)>> : std::true_type {};

struct Keep {
  Row row;
  template <class F>
  void operator()(const char *, F &field) {
    using Plain = std::remove_const_t<F>;
    if constexpr (Field<Plain>::is_supported) {
      if constexpr (KeepsState<Plain>::value && !std::is_const_v<F>)
        Field<Plain>::keep(&field, row);
      else
        row.next_column += Field<Plain>::n_columns;
    }
  }
};

template <class F, class = void>
struct NeedsScratch : std::false_type {};
template <class F>
struct NeedsScratch<F, std::void_t<decltype(&Field<F>::n_scratch_bytes)>> : std::true_type {};

struct Measure {
  Row row;
  std::size_t n_bytes = 0;
  template <class F>
  void operator()(const char *, F &) {
    using Plain = std::remove_const_t<F>;
    if constexpr (Field<Plain>::is_supported) {
      if constexpr (NeedsScratch<Plain>::value)
        n_bytes += Field<Plain>::n_scratch_bytes(
            reinterpret_cast<const std::int64_t *>(row.columns[row.next_column]), row.row);
      row.next_column += Field<Plain>::n_columns;
    }
  }
};

// Statics of a codelet belong to one tile; here threads share them, so rows take turns.
inline int statics_are_busy = 0;
struct Turn {
  bool taken;
  explicit Turn(bool is_needed) : taken(is_needed) {
    while (taken && __atomic_exchange_n(&statics_are_busy, 1, __ATOMIC_ACQUIRE)) {}
  }
  ~Turn() {
    if (taken) __atomic_store_n(&statics_are_busy, 0, __ATOMIC_RELEASE);
  }
};

template <class V, class Fields, bool HasStatics>
std::int64_t run_rows(std::uint8_t *arena, const std::int64_t *columns, std::int64_t begin,
                      std::int64_t end, std::int64_t *cycles) {
  // Never constructed: constructors are often declared only.
  alignas(16) alignas(V) unsigned char storage[sizeof(V)];
  V *vertex = reinterpret_cast<V *>(storage);
  std::size_t n_scratch_bytes = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    Measure measure{{arena, columns, row, nullptr}};
    Fields::each(*vertex, measure);
    if (measure.n_bytes > n_scratch_bytes) n_scratch_bytes = measure.n_bytes;
  }
  std::uint8_t *scratch =
      n_scratch_bytes ? static_cast<std::uint8_t *>(std::malloc(n_scratch_bytes)) : nullptr;
  bool all_true = true;
  for (std::int64_t row = begin; row < end; ++row) {
    std::memset(storage, 0, sizeof storage);
    Fill fill{{arena, columns, row, scratch}};
    Fields::each(*vertex, fill);
    {
      Turn turn(HasStatics);
      all_true &= run(vertex, cycles, row);
    }
    Keep keep{{arena, columns, row, nullptr}};
    Fields::each(*vertex, keep);
  }
  std::free(scratch);
  return all_true;
}

template <class V>
const char *name_of() {
  return __PRETTY_FUNCTION__;
}

template <class V, class Fields>
void describe(int index, Emit emit) {
  if constexpr (is_codelet<V>) {
    char line[4096];
    const char *base = is_multi<V> ? "MULTI_VERTEX" : is_supervisor<V> ? "SUPERVISOR_VERTEX" : "VERTEX";
    std::snprintf(line, sizeof line, "vertex\t%d\t%s\t%s\t%d", index, name_of<V>(), base,
                  int(returns_bool<V>));
    emit(line);
    Describe describe_field{emit};
    alignas(V) static unsigned char storage[sizeof(V)];
    Fields::each(*reinterpret_cast<V *>(storage), describe_field);
  }
}

template <class V, class Fields, bool HasStatics>
std::int64_t run_codelet(std::uint8_t *arena, const std::int64_t *columns, std::int64_t begin,
                         std::int64_t end, std::int64_t *cycles) {
  if constexpr (is_codelet<V>) return run_rows<V, Fields, HasStatics>(arena, columns, begin, end, cycles);
  else return 0;
}

}  // namespace tremula

// Whether class V has an own, non-static member of this name; specialisations may differ.
#define TREMULA_HAS(name)                                                                  \
  template <class V, class = void>                                                         \
  struct tremula_has_##name : std::false_type {};                                          \
  template <class V>                                                                       \
  struct tremula_has_##name<V, std::enable_if_t<std::is_member_object_pointer_v<decltype(&V::name)>>> \
      : std::true_type {};

#endif
