// Short vector types. They live here and not in poplar/Vertex.hpp, because codelets may define
// their own float2 as long as they do not ask for these.
#ifndef TREMULA_IPUDEF_H
#define TREMULA_IPUDEF_H

#include <poplar/HalfFloat.hpp>

#define TREMULA_SHORT_VECTOR(name, element, count) \
  typedef element name __attribute__((vector_size(sizeof(element) * count)));
TREMULA_SHORT_VECTOR(float2, float, 2)
TREMULA_SHORT_VECTOR(float4, float, 4)
TREMULA_SHORT_VECTOR(half2, half, 2)
TREMULA_SHORT_VECTOR(half4, half, 4)
TREMULA_SHORT_VECTOR(char2, signed char, 2)
TREMULA_SHORT_VECTOR(char4, signed char, 4)
TREMULA_SHORT_VECTOR(uchar2, unsigned char, 2)
TREMULA_SHORT_VECTOR(uchar4, unsigned char, 4)
TREMULA_SHORT_VECTOR(short2, short, 2)
TREMULA_SHORT_VECTOR(short4, short, 4)
TREMULA_SHORT_VECTOR(ushort2, unsigned short, 2)
TREMULA_SHORT_VECTOR(ushort4, unsigned short, 4)
TREMULA_SHORT_VECTOR(int2, int, 2)
TREMULA_SHORT_VECTOR(int4, int, 4)
TREMULA_SHORT_VECTOR(uint2, unsigned, 2)
TREMULA_SHORT_VECTOR(uint4, unsigned, 4)
TREMULA_SHORT_VECTOR(longlong2, long long, 2)
TREMULA_SHORT_VECTOR(ulonglong2, unsigned long long, 2)
#undef TREMULA_SHORT_VECTOR

#endif
