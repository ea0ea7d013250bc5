// The type of a hardware repeat count.
#ifndef TREMULA_POPLAR_LOOPS_HPP
#define TREMULA_POPLAR_LOOPS_HPP

typedef unsigned rptsize_t;

#endif
