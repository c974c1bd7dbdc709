// SPDX-License-Identifier: Apache-2.0
// libbench_named.so: CUDA memory under the names that bcc's memleak probes in a library (it accepts
// no others), so that memleak can trace the program's CUDA calls: posix_memalign is cudaMalloc,
// free is cudaFree. Loaded with RTLD_LOCAL, so that nothing else takes them for the C library's.
// With frame pointers: the functions begin with a push, where a probe is cheapest, and memleak can
// unwind them.
#define _GNU_SOURCE
#include "cudart.h"
#include <stddef.h>
#include <stdlib.h>
#include <sys/types.h>

int posix_memalign(void **p, size_t alignment, size_t size)
{
	(void)alignment;
	int result = cudaMalloc(p, size);
	return result;
}

void free(void *p)
{
	int result = cudaFree(p);
	if (result)
		abort();
}

// memleak needs these too; nothing calls them.
void *malloc(size_t size) { (void)size; abort(); }
void *calloc(size_t n, size_t size) { (void)n, (void)size; abort(); }
void *realloc(void *p, size_t size) { (void)p, (void)size; abort(); }
void *valloc(size_t size) { (void)size; abort(); }
void *pvalloc(size_t size) { (void)size; abort(); }
void *aligned_alloc(size_t alignment, size_t size) { (void)alignment, (void)size; abort(); }
void *memalign(size_t alignment, size_t size) { (void)alignment, (void)size; abort(); }
void *mmap(void *p, size_t n, int protection, int flags, int fd, off_t at) { (void)p, (void)n, (void)protection, (void)flags, (void)fd, (void)at; abort(); }
int munmap(void *p, size_t n) { (void)p, (void)n; abort(); }
