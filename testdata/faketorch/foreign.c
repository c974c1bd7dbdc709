// SPDX-License-Identifier: Apache-2.0
// A library beside PyTorch that allocates its own memory.
#include <stddef.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);

__attribute__((noipa)) int foreign_take(void **p, size_t size) { return cudaMalloc(p, size); }
__attribute__((noipa)) int foreign_give(void *p) { return cudaFree(p); }
