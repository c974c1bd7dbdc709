// SPDX-License-Identifier: Apache-2.0
// The memory functions of the fake libcuda.so.1.
#define _GNU_SOURCE
#include "blocks.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define SPIN_MAX_NS 100000

static void wait_latency(void)
{
	struct timespec from, now, pause = {.tv_sec = (time_t)(allocation_latency / 1000000000),
					    .tv_nsec = (long)(allocation_latency % 1000000000)};
	if (allocation_latency > SPIN_MAX_NS) {
		nanosleep(&pause, NULL);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((uint64_t)(now.tv_sec - from.tv_sec) * 1000000000 + (uint64_t)(now.tv_nsec - from.tv_nsec) < allocation_latency);
}

int usable(struct context **out)
{
	struct context *c = current_context();
	if (!initialised)
		return NOT_INITIALIZED;
	if (!c)
		return INVALID_CONTEXT;
	if (!c->active)
		return CONTEXT_IS_DESTROYED;
	*out = c;
	if (__builtin_expect(allocation_latency != 0, 0))
		wait_latency();
	return SUCCESS;
}

int impl_cuMemAlloc_v2(uint64_t *address, size_t size)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!address || !size)
		return INVALID_VALUE;
	return arena_alloc(&c->arena, size, false, address);
}

int impl_cuMemAllocManaged(uint64_t *address, size_t size, unsigned flags)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!address || !size || !flags || flags > 7)
		return INVALID_VALUE;
	return arena_alloc(&c->arena, size, true, address);
}

int impl_cuMemFree_v2(uint64_t address)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!address)
		return SUCCESS;
	struct context *c = context_at(address);
	return c ? arena_free(&c->arena, address) : blocks_free(address);
}

int impl_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct context *c = current_context();
	if (!c)
		return initialised ? INVALID_CONTEXT : NOT_INITIALIZED;
	uint64_t used = gpu_used(c->gpu);
	*total = gpu_capacity();
	*free_bytes = used < *total ? *total - used : 0;
	return SUCCESS;
}

// Pinned memory is real. This is an open-addressing table of its mappings.
struct pinned {
	void *address; // NULL: never used; PINNED_GONE: freed
	size_t size;
	struct context *owner;
};
#define PINNED_GONE ((void *)1)
#define PINNED_PAGE 4096

static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pinned *pinned;
static size_t pinned_slots, pinned_filled; // filled includes freed entries

static struct pinned *pinned_find(void *address, bool insert)
{
	size_t mask = pinned_slots - 1, i = ((uintptr_t)address / PINNED_PAGE * 0x9e3779b97f4a7c15ull) >> 20;
	for (;; i++) {
		struct pinned *p = &pinned[i & mask];
		if (p->address == address || !p->address)
			return p;
		if (insert && p->address == PINNED_GONE)
			return p;
	}
}

static bool pinned_grow(void)
{
	if (pinned_filled * 2 < pinned_slots)
		return true;
	struct pinned *old = pinned;
	size_t old_slots = pinned_slots, live = 0;
	for (size_t i = 0; i < old_slots; i++)
		live += old[i].address > PINNED_GONE;
	size_t slots = 1024;
	while (slots < live * 4)
		slots *= 2;
	struct pinned *table = calloc(slots, sizeof *table);
	if (!table)
		return false;
	pinned = table;
	pinned_slots = slots;
	pinned_filled = live;
	for (size_t i = 0; i < old_slots; i++)
		if (old[i].address > PINNED_GONE)
			*pinned_find(old[i].address, true) = old[i];
	free(old);
	return true;
}

static size_t mapped(size_t size) { return (size + PINNED_PAGE - 1) & ~(size_t)(PINNED_PAGE - 1); }

int impl_cuMemHostAlloc(void **address, size_t size, unsigned flags UNUSED)
{
	struct context *c;
	int result = usable(&c);
	if (result != SUCCESS)
		return result;
	if (!address || !size)
		return INVALID_VALUE;
	if (size > (1ull << 46))
		return OUT_OF_MEMORY;
	void *p = mmap(NULL, mapped(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&pinned_lock);
	if (pinned_grow()) {
		struct pinned *slot = pinned_find(p, true);
		pinned_filled += !slot->address;
		*slot = (struct pinned){p, size, c};
		atomic_fetch_add(&self->pinned_bytes, size);
		atomic_fetch_add(&self->pinned_count, 1);
		atomic_fetch_add(&self->pinned_total_bytes, size);
		atomic_fetch_add(&self->pinned_total_count, 1);
		*address = p;
	} else {
		munmap(p, mapped(size));
		result = OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&pinned_lock);
	return result;
}

int impl_cuMemAllocHost_v2(void **address, size_t size) { return impl_cuMemHostAlloc(address, size, 0); }

// The caller holds pinned_lock.
static void pinned_drop(struct pinned *p)
{
	munmap(p->address, mapped(p->size));
	atomic_fetch_sub(&self->pinned_bytes, p->size);
	atomic_fetch_sub(&self->pinned_count, 1);
	p->address = PINNED_GONE;
}

int impl_cuMemFreeHost(void *address)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!address)
		return INVALID_VALUE;
	int result = INVALID_VALUE;
	pthread_mutex_lock(&pinned_lock);
	if (address > PINNED_GONE && pinned_slots) {
		struct pinned *p = pinned_find(address, false);
		if (p->address == address) {
			pinned_drop(p);
			result = SUCCESS;
		}
	}
	pthread_mutex_unlock(&pinned_lock);
	return result;
}

bool pinned_at(uint64_t address)
{
	bool found = false;
	pthread_mutex_lock(&pinned_lock);
	for (size_t i = 0; i < pinned_slots && !found; i++)
		found = pinned[i].address > PINNED_GONE && address - (uint64_t)pinned[i].address < pinned[i].size;
	pthread_mutex_unlock(&pinned_lock);
	return found;
}

void pinned_release(const struct context *owner)
{
	pthread_mutex_lock(&pinned_lock);
	for (size_t i = 0; i < pinned_slots; i++)
		if (pinned[i].address > PINNED_GONE && pinned[i].owner == owner)
			pinned_drop(&pinned[i]);
	pthread_mutex_unlock(&pinned_lock);
}
