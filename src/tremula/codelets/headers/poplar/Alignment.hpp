// Alignment is stated in field types; nothing more is needed on a host.
#ifndef TREMULA_POPLAR_ALIGNMENT_HPP
#define TREMULA_POPLAR_ALIGNMENT_HPP
#endif
