// SPDX-License-Identifier: Apache-2.0
// pluggable.c: an allocator for PyTorch's CUDAPluggableAllocator, as its documentation has one.
#include <stddef.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);

void *new_memory(size_t size, int device, void *stream) {
    void *p = NULL;
    (void)device, (void)stream;
    return cudaMalloc(&p, size) == 0 ? p : NULL;
}

void old_memory(void *p, size_t size, int device, void *stream) {
    (void)size, (void)device, (void)stream;
    cudaFree(p);
}
