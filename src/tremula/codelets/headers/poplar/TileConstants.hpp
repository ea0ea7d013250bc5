// The constants of a tile that portable codelets use.
#ifndef TREMULA_POPLAR_TILE_CONSTANTS_HPP
#define TREMULA_POPLAR_TILE_CONSTANTS_HPP

// Left as a name when a file is preprocessed (so not a number for #if); a number when it is
// compiled for a chip.
#define CTXT_WORKERS TREMULA_N_WORKERS
#define NUM_WORKERS CTXT_WORKERS
#define NUM_STRIDE_BITS 10
#define TFPU_ROUND_NEAREST 0
#define TFPU_ROUND_ZERO 3

#endif
