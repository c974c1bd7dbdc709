// SPDX-License-Identifier: Apache-2.0
// Internal to libcuda.so.1.
#pragma once
#include "books.h"
#include <pthread.h>
#include <stdbool.h>

enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	ALREADY_MAPPED = 208,
	NOT_FOUND = 500,
	CONTEXT_IS_DESTROYED = 709,
	HOST_MEMORY_ALREADY_REGISTERED = 712,
	HOST_MEMORY_NOT_REGISTERED = 713,
	NOT_SUPPORTED = 801,
	UNKNOWN = 999,
};

#define UNUSED __attribute__((unused))

// An arena is the device memory of one context. It only does accounting: its addresses are reserved
// and not accessible.
struct arena {
	int gpu;                // physical
	uint64_t base, pages;   // of GPU_PAGE bytes
	uint64_t *used;         // one bit per page
	uint64_t lowest;        // no free page is below
	struct page *page;
	struct small_page *partial; // pages with room; the last one freed into comes first
	struct small_page *spare;
	struct small_page *all;
};

// Both return a CUresult. They do nothing if the GPU has no memory left.
int arena_create(struct arena *a, int gpu);
void arena_destroy(struct arena *a);
int arena_alloc(struct arena *a, uint64_t size, bool managed, uint64_t *address);
int arena_free(struct arena *a, uint64_t address);
uint64_t arena_size(struct arena *a, uint64_t address); // as requested; 0: no allocation starts there
void book_device(int gpu, uint64_t size, uint64_t count); // for device memory outside of arenas

struct context {
	int ordinal; // the process's number
	int gpu;     // physical
	int references;
	_Atomic bool active;
	bool primary;
	struct arena arena;
	struct context *stands_for; // of a green context: its primary context
};

extern _Atomic bool initialised;
extern struct process_books *self; // this process's slot
extern uint64_t allocation_latency; // ns
extern struct books *books;
extern struct context contexts[]; // [ordinal] is the primary context

// usable returns the CUresult of a call without a usable context.
int usable(struct context **out);
bool charge(int gpu, _Atomic uint64_t *account, uint64_t bytes);
struct context *current_context(void);
struct context *context_at(uint64_t address); // whose arena holds the address
int visible_gpu(int ordinal);                 // physical, or -1
int visible_gpus(void);
void read_visible_gpus(void);
void hold_nodes(void);
uint64_t gpu_capacity(void);
uint64_t gpu_used(int gpu);
int own_slot(void);
bool slot_alive(int slot, uint64_t pid, uint64_t start);
int context_of_green(struct context **out, int gpu_ordinal); // an alias of the primary context, which is retained
void green_release(struct context *c);
void pinned_release(const struct context *owner);
bool pinned_at(uint64_t address);  // in pinned memory
int vmm_gpu(uint64_t address);     // physical, of what cuMemMap put there, or -1
