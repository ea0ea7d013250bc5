// Builtins stand for single instructions and are used only in code guarded by __IPU__, which a host
// never compiles; portable code finds its functions in ipu_vector_math and ipu_memory_intrinsics.
#ifndef TREMULA_IPU_BUILTINS_H
#define TREMULA_IPU_BUILTINS_H

#include <ipudef.h>

#endif
