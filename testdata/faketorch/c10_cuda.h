// SPDX-License-Identifier: Apache-2.0
// What libc10_cuda.so offers to tensors_c.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define MAX_DEVICES 16

// An allocator's own books of one device.
struct totals {
	size_t allocated, reserved, live; // live: blocks
	size_t largest;                   // free block
	size_t peak;                      // of allocated
	size_t retries, failures;         // after an error 2: flushed and tried again, gave up
	struct {
		size_t allocated, live;            // of those blocks
		size_t segments, cached, largest;  // of those segments: bytes, bytes not given out, longest run of them
	} since; // torch_mark, or the beginning
};

// All are of the caching allocator; sizes are in bytes.
void *torch_alloc(size_t size, int device, size_t *got); // NULL: out of memory; got: the block's size
size_t torch_free(void *);                               // gives its size
void torch_empty_cache(void);
// torch_sleep takes the memory from the large segments of all devices, or gives them new one: expandable ones only.
void torch_sleep(bool wake);
void torch_totals(int device, struct totals *);
void torch_mark(void);
// torch_lie adds to what is reported from now on, on all devices.
void torch_lie(long allocated, long reserved);

// Memory of the host while a profiler with profile_memory is on. mapped: as MapAllocator reports
// it, with totals that are no totals.
void *torch_cpu_alloc(size_t size, bool mapped);
void torch_cpu_free(void *, size_t size, bool mapped);
