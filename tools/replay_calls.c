/* Calls of native loops again, with arrays of exactly their size: for `make test-valgrind`.

   replay FILE: records of { path, arguments, number of results } as tools/native_calls.py writes them. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64 };
typedef int64_t word;
typedef void (*Loop)(word, word, word, word, word, word, word, word, word, word, word, word, word,
                     word, word, word, word, word, word, word, word, word, word, word, word, word,
                     word, word, word, word, word, word, word, word, word, word, word, word, word,
                     word, word, word, word, word, word, word, word, word, word, word, word, word,
                     word, word, word, word, word, word, word, word, word, word, word, word);

static word number(FILE *file) {
    word value;
    if (fread(&value, sizeof value, 1, file) != 1) exit(ferror(file) ? 2 : 0);
    return value;
}

static void *bytes(FILE *file, word n) {
    char *result = malloc((size_t)n);
    if (n && fread(result, 1, (size_t)n, file) != (size_t)n) exit(2);
    return result;
}

static Loop loop_of(FILE *file) {
    word n = number(file);
    char *path = malloc((size_t)n + 1);
    if (fread(path, 1, (size_t)n, file) != (size_t)n) exit(2);
    path[n] = 0;
    void *library = dlopen(path, RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(3); }
    free(path);
    return (Loop)dlsym(library, "sweep");
}

static void call(FILE *file) {
    word a[MOST] = {0};
    void *made[MOST];
    int n = 0, n_made = 0;
    Loop loop = loop_of(file);
    for (word left = number(file); left; --left) {
        if (n > MOST - 4) exit(4);
        if (!number(file)) { a[n++] = number(file); continue; } /* a plain number */
        word first = number(file), last = number(file);
        made[n_made] = bytes(file, number(file));
        a[n++] = (word)(intptr_t)made[n_made++];
        a[n++] = first;
        a[n++] = last;
    }
    word n_results = number(file);
    made[n_made] = n_results ? malloc((size_t)n_results * sizeof(word)) : NULL;
    a[n] = (word)(intptr_t)made[n_made++];
    loop(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
         a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26],
         a[27], a[28], a[29], a[30], a[31], a[32], a[33], a[34], a[35], a[36], a[37], a[38], a[39],
         a[40], a[41], a[42], a[43], a[44], a[45], a[46], a[47], a[48], a[49], a[50], a[51], a[52],
         a[53], a[54], a[55], a[56], a[57], a[58], a[59], a[60], a[61], a[62], a[63]);
    while (n_made) free(made[--n_made]);
}

int main(int count, char **words) {
    FILE *file = count > 1 ? fopen(words[1], "rb") : NULL;
    if (!file) return 2;
    for (;;) call(file);
}
