// SPDX-License-Identifier: Apache-2.0
// Segments: allocated with cudaMalloc or, with FAKETORCH_EXPANDABLE=1, pages mapped into one
// address range per device and pool.
#include "allocator.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaSetDevice(int);

struct properties {
	int type, handles, where, device;
	void *windows;
	unsigned char flags[8];
};
struct access {
	int where, device, flags;
};

static int (*mem_reserve)(uint64_t *, size_t, size_t, uint64_t, unsigned long long), (*mem_map)(uint64_t, size_t, size_t, uint64_t, unsigned long long);
static int (*mem_create)(uint64_t *, size_t, const struct properties *, unsigned long long), (*mem_release)(uint64_t);
static int (*mem_unmap)(uint64_t, size_t), (*mem_access)(uint64_t, size_t, const struct access *, size_t);

void on_device(int ordinal)
{
	static __thread int current = -1;
	if (current != ordinal)
		cudaSetDevice(current = ordinal);
}

bool expandable(void)
{
	static int wanted = -1;
	if (wanted < 0) {
		const char *value = getenv("FAKETORCH_EXPANDABLE");
		wanted = value && *value == '1';
	}
	return wanted;
}

uint32_t marks;

static struct block *new_block(struct pool *pool, char *address, size_t size, bool mapped)
{
	struct block *b = calloc(1, sizeof *b);
	*b = (struct block){.pool = pool, .address = address, .size = size, .free = true, .mapped = mapped, .taken = marks};
	return b;
}

bool add_segment(struct pool *pool, size_t size)
{
	void *address;
	if (expandable())
		return add_pages(pool, size);
	size = pool->small ? SMALL_SEGMENT : size < LARGE_SEGMENT / 2 ? LARGE_SEGMENT : (size + SMALL_SEGMENT - 1) & ~(SMALL_SEGMENT - 1);
	if (cudaMalloc(&address, size) != 0)
		return false;
	pool->device->totals.reserved += size;
	struct block *b = new_block(pool, address, size, true);
	b->following = pool->segments;
	pool->segments = b;
	put_free(b);
	return true;
}

// give_back_cached frees the segments without allocated blocks.
void give_back_cached(struct device *d)
{
	for (int i = 0; i < 2; i++) {
		if (expandable()) {
			give_back_pages(&d->pool[i]);
			continue;
		}
		for (struct block **link = &d->pool[i].segments, *b; (b = *link);) {
			if (!b->free || b->after) {
				link = &b->following;
				continue;
			}
			*link = b->following;
			take_free(b);
			d->totals.reserved -= b->size;
			cudaFree(b->address);
			free(b);
		}
	}
}

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "c10_cuda: %s\n", dlerror());
		exit(1);
	}
	*(void **)&mem_reserve = dlsym(library, "cuMemAddressReserve");
	*(void **)&mem_create = dlsym(library, "cuMemCreate");
	*(void **)&mem_map = dlsym(library, "cuMemMap");
	*(void **)&mem_access = dlsym(library, "cuMemSetAccess");
	*(void **)&mem_unmap = dlsym(library, "cuMemUnmap");
	*(void **)&mem_release = dlsym(library, "cuMemRelease");
}

size_t page_of(const struct pool *pool) { return pool->small ? SMALL_SEGMENT : LARGE_SEGMENT; }

// The pages of a pool's range. handle 0: no memory.
#define MAX_PAGES 16384
static struct page {
	uint64_t handle;
	uint32_t taken;
	bool asleep;
} pages[MAX_DEVICES][2][MAX_PAGES];

static struct page *page_at(const struct pool *pool, const char *address)
{
	return &pages[pool->device->ordinal][pool->small][(size_t)(address - pool->range->address) / page_of(pool)];
}

bool page_taken(const struct pool *pool, size_t page, uint32_t *taken)
{
	const struct page *x = &pages[pool->device->ordinal][pool->small][page];
	*taken = x->taken;
	return x->handle != 0;
}

static bool map_page(struct pool *pool, char *address)
{
	size_t page = page_of(pool);
	uint64_t handle;
	struct properties p = {.type = 1, .where = 1, .device = pool->device->ordinal};
	struct access a = {.where = 1, .device = pool->device->ordinal, .flags = 3};
	if (mem_create(&handle, page, &p, 0) != 0)
		return false;
	if (mem_map((uint64_t)address, page, 0, handle, 0) != 0 || mem_access((uint64_t)address, page, &a, 1) != 0) {
		fprintf(stderr, "c10_cuda: cannot map a page\n");
		exit(1);
	}
	*page_at(pool, address) = (struct page){.handle = handle, .taken = marks};
	pool->device->totals.reserved += page;
	return true;
}

static void unmap_page(struct pool *pool, char *address)
{
	mem_unmap((uint64_t)address, page_of(pool));
	mem_release(page_at(pool, address)->handle);
	page_at(pool, address)->handle = 0;
	pool->device->totals.reserved -= page_of(pool);
}

// pool_sleep unmaps all pages of a pool under its blocks, as vLLM's sleep mode and
// torch_memory_saver do without the allocator's knowledge, so its totals do not change. Waking up
// maps new pages.
void pool_sleep(struct pool *pool, bool wake)
{
	for (size_t i = 0; pool->range && i < MAX_PAGES; i++) {
		struct page *x = &pages[pool->device->ordinal][pool->small][i];
		char *address = pool->range->address + i * page_of(pool);
		size_t reserved = pool->device->totals.reserved;
		if (wake ? !x->asleep : !x->handle)
			continue;
		if (wake)
			map_page(pool, address);
		else
			unmap_page(pool, address);
		x->asleep = !wake;
		pool->device->totals.reserved = reserved;
	}
}

static void reserve_range(struct pool *pool)
{
	uint64_t address;
	size_t size = page_of(pool) * (pool->small ? MAX_PAGES : 1024);
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load);
	if (mem_reserve(&address, size, 0, 0, 0) != 0) {
		fprintf(stderr, "c10_cuda: no addresses\n");
		exit(1);
	}
	pool->range = new_block(pool, (char *)address, size, false);
}

// add_pages maps the pages that a request needs, after a free block if there is one.
bool add_pages(struct pool *pool, size_t size)
{
	size_t page = page_of(pool);
	if (!pool->range)
		reserve_range(pool);
	struct block *b = pool->range;
	size_t ahead = 0;
	for (;; b = b->after) {
		if (!b)
			return false;
		ahead = b->before && b->before->free && b->before->mapped ? b->before->size : 0;
		if (!b->mapped && ahead + b->size >= size)
			break;
	}
	size_t want = (size - ahead + page - 1) / page * page, have;
	for (have = 0; have < want && map_page(pool, b->address + have); have += page)
		;
	if (have < want) {
		while (have)
			unmap_page(pool, b->address + (have -= page));
		return false;
	}
	if (have < b->size)
		split(b, have);
	b->mapped = true;
	put_free(merge(b));
	return true;
}

// give_back_pages unmaps the pages that are completely inside free blocks.
void give_back_pages(struct pool *pool)
{
	size_t page = page_of(pool);
	char *base = pool->range ? pool->range->address : NULL;
	for (struct block *b = pool->range; b; b = b->after) {
		if (!b->free || !b->mapped)
			continue;
		size_t from = ((size_t)(b->address - base) + page - 1) / page * page, to = (size_t)(b->address - base + b->size) / page * page;
		if (from >= to)
			continue;
		take_free(b);
		if (base + from > b->address) {
			split(b, (size_t)(base + from - b->address));
			put_free(b);
			b = b->after;
		}
		if (base + to < b->address + b->size) {
			split(b, (size_t)(base + to - b->address));
			put_free(b->after);
		}
		for (size_t at = from; at < to; at += page)
			unmap_page(pool, base + at);
		b->mapped = false;
		b = merge(b);
	}
}
