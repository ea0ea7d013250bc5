// printf for codelets: prints on the host's standard output.
#ifndef TREMULA_PRINT_H
#define TREMULA_PRINT_H

#include <cstdio>

using std::printf;

#endif
