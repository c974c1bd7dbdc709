// SPDX-License-Identifier: Apache-2.0
// nccl_static.c: a program that NCCL is linked into, as older builds of PyTorch. It prints "loaded", waits for a line, makes a
// communicator and a buffer, prints "ready" and waits again.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    char bytes[128];
} ncclUniqueId;

int ncclGetUniqueId(ncclUniqueId *);
int ncclCommInitRank(void **, int, ncclUniqueId, int);
int ncclMemAlloc(void **, unsigned long);

// Debian's NCCL was built with a newer libc than this program may be.
long __isoc23_strtol(const char *s, char **end, int base) { return strtol(s, end, base); }
long long __isoc23_strtoll(const char *s, char **end, int base) { return strtoll(s, end, base); }
unsigned long long __isoc23_strtoull(const char *s, char **end, int base) { return strtoull(s, end, base); }

#define SCAN(name, source)                         \
    int __isoc23_##name(source, const char *format, ...) { \
        va_list rest;                              \
        va_start(rest, format);                    \
        int n = v##name(from, format, rest);       \
        va_end(rest);                              \
        return n;                                  \
    }
SCAN(fscanf, FILE *from)
SCAN(sscanf, const char *from)

__attribute__((noinline)) static int world(void) {
    ncclUniqueId id;
    void *comm;
    return ncclGetUniqueId(&id) == 0 && ncclCommInitRank(&comm, 1, id, 0) == 0;
}

__attribute__((noinline)) static int buffer(void) {
    void *p;
    return ncclMemAlloc(&p, 8 << 20) == 0;
}

int main(void) {
    puts("loaded");
    fflush(stdout);
    getchar();
    int made = world() && buffer();
    puts(made ? "ready" : "failed");
    fflush(stdout);
    getchar();
    return !made;
}
