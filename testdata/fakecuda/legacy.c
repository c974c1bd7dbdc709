// SPDX-License-Identifier: Apache-2.0
// The unsuffixed functions of CUDA 3.1 and older, with 32-bit sizes and addresses. Their memory is
// in a window below 4 GiB.
#define _GNU_SOURCE
#include "blocks.h"
#include <sys/mman.h>

#define WINDOW_PAGES 256
#define PITCH 512
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

int impl_cuMemHostAlloc(void **address, size_t size, unsigned flags);

static uint64_t window;
static bool taken[WINDOW_PAGES];

static bool window_open(void)
{
	for (uint64_t at = 0x20000000; !window && at < 0xc0000000; at += 0x10000000) {
		void *p = mmap((void *)at, WINDOW_PAGES * GPU_PAGE, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == (void *)at)
			window = at;
		else if (p != MAP_FAILED)
			munmap(p, WINDOW_PAGES * GPU_PAGE);
	}
	return window != 0;
}

static uint64_t window_take(uint64_t pages)
{
	uint64_t run = 0;
	for (uint64_t i = 0; i < WINDOW_PAGES; i++) {
		run = taken[i] ? 0 : run + 1;
		if (run < pages)
			continue;
		for (uint64_t k = i + 1 - pages; k <= i; k++)
			taken[k] = true;
		return window + (i + 1 - pages) * GPU_PAGE;
	}
	return 0;
}

void low_refund(struct block *b)
{
	uint64_t first = (b->key - window) / GPU_PAGE;
	for (uint64_t i = first; i < first + b->charged / GPU_PAGE; i++)
		taken[i] = false;
	book_device(b->gpu, -b->size, -1ull);
}

static int low_alloc(unsigned *address, unsigned size)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!address || !size)
		return INVALID_VALUE;
	uint64_t bytes = whole_pages(size);
	_Atomic uint64_t *reserved = &self->gpu[c->gpu].reserved;
	if (!charge(c->gpu, reserved, bytes))
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&blocks_lock);
	uint64_t at = window_open() ? window_take(bytes / GPU_PAGE) : 0;
	struct block *b = at ? block_add(LOW, at, c->gpu, size, c) : NULL;
	if (b) {
		b->charged = bytes;
		book_device(c->gpu, size, 1);
		*address = (unsigned)at;
	} else {
		atomic_fetch_sub(reserved, bytes);
	}
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : OUT_OF_MEMORY;
}

int impl_cuMemAlloc(unsigned *address, unsigned size) { return low_alloc(address, size); }

int impl_cuMemFree(unsigned address)
{
	if (!address)
		return initialised ? SUCCESS : NOT_INITIALIZED;
	return blocks_drop(address, LOW);
}

int impl_cuMemAllocPitch(unsigned *address, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
	if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
		return INVALID_VALUE;
	uint64_t wide = ((uint64_t)width + PITCH - 1) & ~(uint64_t)(PITCH - 1);
	if (wide * height > 0xffffffffu)
		return OUT_OF_MEMORY;
	int result = low_alloc(address, (unsigned)(wide * height));
	if (result == SUCCESS)
		*pitch = (unsigned)wide;
	return result;
}

int impl_cuMemAllocHost(void **address, unsigned size) { return impl_cuMemHostAlloc(address, size, 0); }
