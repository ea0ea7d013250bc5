// Stack annotations for assembly; a host has stack enough.
#ifndef TREMULA_POPLAR_STACK_SIZE_DEFS_HPP
#define TREMULA_POPLAR_STACK_SIZE_DEFS_HPP

#define DEF_STACK_USAGE(bytes, function)
#define DEF_STACK_SIZE_OWN(bytes, function)

#endif
