// SPDX-License-Identifier: Apache-2.0
// A library other than PyTorch's that holds device memory.
#include <stddef.h>

extern int cudaMalloc(void **p, size_t size);
extern int cudaFree(void *p);
void *foreign_hold(size_t size);
void foreign_release(void *p);

__attribute__((noinline)) static void *foreign_pool(size_t size)
{
	void *p = NULL;
	return cudaMalloc(&p, size) == 0 ? p : NULL;
}

void *foreign_hold(size_t size) { return foreign_pool(size); }

void foreign_release(void *p) { cudaFree(p); }
