// SPDX-License-Identifier: Apache-2.0
// The parts of the fake caching allocator: it cuts blocks from segments and keeps freed ones.
#pragma once
#define _GNU_SOURCE
#include "c10_cuda.h"
#include <pthread.h>
#include <stdint.h>

#define BINS 4096
#define MIB ((size_t)1 << 20)
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define SMALL_REQUEST MIB

// A piece of a segment. Allocators before PyTorch 1.10 report its own address, so it must not be
// smaller than theirs.
struct block {
	char *address;
	size_t size;
	struct block *before, *after;    // in the segment
	struct block *previous, *next;   // free neighbors in the bin
	struct pool *pool;
	bool free, mapped;               // mapped: has memory; always true except in expandable segments
	uint32_t given, taken;           // number of marks when it was allocated, and when its segment was taken
	struct block *following;         // the first block of the next segment, in a list of all of the pool
	char stream_uses[64];
};

// Free blocks of one class of request sizes.
struct pool {
	bool small;
	struct block *bin[BINS];
	uint64_t used[BINS / 64]; // nonempty bins
	struct block *segments;   // the first block of each
	struct block *range;      // of the expandable segment
	struct device *device;
};

struct device {
	pthread_mutex_t lock;
	int ordinal;
	struct pool pool[2]; // large, small
	struct totals totals;
	struct block **table; // live blocks by address, open addressing
	size_t room;
};

// bins.c
void put_free(struct block *);
void take_free(struct block *);
struct block *find_free(struct pool *, size_t size);
void table_put(struct device *, struct block *);
struct block *table_take(struct device *, void *address);

// segments.c
extern uint32_t marks;
bool add_segment(struct pool *, size_t size); // false: out of memory
void give_back_cached(struct device *);
bool expandable(void);
bool add_pages(struct pool *, size_t size);   // the same for expandable segments
void give_back_pages(struct pool *);
void on_device(int ordinal);
void pool_sleep(struct pool *, bool wake);
size_t page_of(const struct pool *);
bool page_taken(const struct pool *, size_t page, uint32_t *marks); // false: it has no memory
// since.c
void count_since(struct device *, struct totals *);
// blocks.c
void split(struct block *, size_t size);
struct block *merge(struct block *);
