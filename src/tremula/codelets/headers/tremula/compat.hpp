// Included before every codelet file: headers that codelets use without asking, and clang's words.
#ifndef TREMULA_COMPAT_HPP
#define TREMULA_COMPAT_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

// half's overloads must exist before <math.h> copies std::sqrt and its like into the global scope.
#include <poplar/HalfFloat.hpp>

#include <math.h>

#define __builtin_assume(condition) ((void)0)

#endif
