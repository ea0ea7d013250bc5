// The constants of a tile that portable codelets use.
#ifndef TREMULA_POPLAR_TILE_CONSTANTS_HPP
#define TREMULA_POPLAR_TILE_CONSTANTS_HPP

#define CTXT_WORKERS 6
#define NUM_WORKERS CTXT_WORKERS
#define NUM_STRIDE_BITS 10
#define TFPU_ROUND_NEAREST 0
#define TFPU_ROUND_ZERO 3

#endif
