// SPDX-License-Identifier: Apache-2.0
// One table of everything that a process holds outside arenas, by its address or handle in the
// program.
#pragma once
#include "driver.h"
#include "structures.h"

enum kind {
	LOW = 1 << 0,         // device memory below 4 GiB, of the old 32-bit functions
	ASYNC = 1 << 1,       // from a pool
	ARRAY = 1 << 2,
	MIPMAP = 1 << 3,
	REGISTERED = 1 << 4,
	OPENED = 1 << 5,      // cuIpcOpenMemHandle
	POINTER = 1 << 6,     // cuMemPoolImportPointer
	EXTERNAL = 1 << 7,    // cuImportExternalMemory
	BUFFER = 1 << 8,      // mapped from EXTERNAL; has no memory itself
	GRAPH_MEMORY = 1 << 9,
	POOL = 1 << 10,
	PHYSICAL = 1 << 11,   // cuMemCreate
	GRAPH = 1 << 12,
	GRAPH_EXEC = 1 << 13,
	MODULE = 1 << 15,
	LIBRARY = 1 << 16,
	GREEN = 1 << 17,      // cuGreenCtxCreate
	MAPPED_MIPMAP = 1 << 14, // the same, through cuExternalMemoryGetMappedMipmappedArray
};

struct block {
	struct block *next;
	uint64_t key;
	enum kind kind;
	int gpu;          // physical
	uint64_t size;    // as requested
	uint64_t charged; // bytes of this GPU's memory
	struct context *owner; // frees it on its destruction; NULL: outlives contexts
	void *detail;          // pool, graph, …; borrowed
	uint64_t origin[2];    // of OPENED: process and address
	int references;
	bool freed; // of GRAPH_MEMORY
};

extern pthread_mutex_t blocks_lock; // acquired after driver.c's lock, before the arenas'

// The caller must hold blocks_lock.
struct block *block_add(enum kind kind, uint64_t key, int gpu, uint64_t size, struct context *owner);
struct block *block_find(uint64_t key, unsigned kinds); // NULL: none of these kinds
void block_drop(struct block *b); // with its accounts, memory and addresses
void blocks_each(void (*visit)(struct block *, void *), void *argument); // visit may drop its block

int blocks_free(uint64_t address); // the part of cuMemFree_v2 outside arenas
int blocks_drop(uint64_t key, unsigned kinds); // INVALID_VALUE if there is none
// blocks_release frees what c owns. last: the GPU has no other context.
void blocks_release(struct context *c, bool last);

uint64_t addresses_take(uint64_t size); // aligned to GPU_PAGE, not accessible; 0: none
void addresses_give(uint64_t address, uint64_t size);

void pools_refund(struct block *b);          // an ASYNC block is freed
void pools_release(int gpu, bool everything); // down to the thresholds, or all
void pools_end(struct block *b);
void graph_memory_refund(struct block *b);
void graph_end(struct block *b);
void low_refund(struct block *b);
int object_charge(struct block *b); // charges the cost of such an object, FAKECUDA_OBJECT; the caller holds blocks_lock
// In the order of a captured stream. NOT_FOUND or false: it is not captured. The caller holds
// blocks_lock.
int graph_capture_alloc(void *stream, int gpu, uint64_t size, uint64_t *address);
bool graph_capture_free(void *stream, uint64_t address);
void physical_refund(struct block *b);

static inline uint64_t whole_pages(uint64_t size) { return (size + GPU_PAGE - 1) & ~(GPU_PAGE - 1); }

#define BOOK_IN(books, kind, size) \
	(atomic_fetch_add(&(books)->kind##_bytes, size), atomic_fetch_add(&(books)->kind##_count, 1))
#define BOOK_OUT(books, kind, size) \
	(atomic_fetch_sub(&(books)->kind##_bytes, size), atomic_fetch_sub(&(books)->kind##_count, 1))
