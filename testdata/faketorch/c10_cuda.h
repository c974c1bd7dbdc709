// SPDX-License-Identifier: Apache-2.0
// What libc10_cuda.so offers to tensors_c.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define MAX_DEVICES 16

// An allocator's own totals of one device.
struct totals {
	size_t allocated, reserved, live; // live: blocks
	size_t largest;                   // free block
	size_t peak;                      // of allocated
	size_t retries, failures;         // after an error 2: flushed and retried; gave up
	struct {
		size_t allocated, live;            // of those blocks
		size_t segments, cached, largest;  // of those segments: bytes, free bytes, longest free run
	} since; // since torch_mark, or since the start
};

// All use the caching allocator; sizes are in bytes.
void *torch_alloc(size_t size, int device, size_t *got); // NULL: out of memory; got: the block's size
size_t torch_free(void *);                               // gives its size
void torch_empty_cache(void);
// torch_sleep unmaps the memory of the large segments of all devices, or maps new memory: only
// expandable segments.
void torch_sleep(bool wake);
void torch_totals(int device, struct totals *);
void torch_mark(void);
// torch_lie adds to all reported totals from now on, on all devices.
void torch_lie(long allocated, long reserved);

// Host memory, as reported while a profiler with profile_memory is on. mapped: as MapAllocator
// reports it, with invalid totals.
void *torch_cpu_alloc(size_t size, bool mapped);
void torch_cpu_free(void *, size_t size, bool mapped);
