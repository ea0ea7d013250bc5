// Base classes of codelets, and everything a codelet expects to see with them.
#ifndef TREMULA_POPLAR_VERTEX_HPP
#define TREMULA_POPLAR_VERTEX_HPP

#include <type_traits>

#include <poplar/HalfFloat.hpp>
#include <poplar/InOutTypes.hpp>
#include <poplar/TileConstants.hpp>
#include <poplar/VectorTypes.hpp>

#define WORKER_ALIGN
#define NO_INSTRUMENT

namespace poplar {

namespace detail {
struct AnyVertex {};
}  // namespace detail

// One worker runs compute().
class Vertex : public detail::AnyVertex {};

// The supervisor runs compute().
class SupervisorVertex : public detail::AnyVertex {};

// All workers of the tile run compute(workerId) and share the fields.
class MultiVertex : public detail::AnyVertex {
 public:
  static constexpr unsigned numWorkers() { return CTXT_WORKERS; }
};

class ExternalExchangeVertex : public detail::AnyVertex {};

template <bool IsSupervisor>
using SupervisorVertexIf = std::conditional_t<IsSupervisor, SupervisorVertex, Vertex>;

}  // namespace poplar

#endif
