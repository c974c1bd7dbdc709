// SPDX-License-Identifier: Apache-2.0
// Suballocation as in the driver: up to 1 MiB from shared 2 MiB pages, more in whole pages.
#define _GNU_SOURCE
#include "driver.h"
#include <stdlib.h>
#include <sys/mman.h>

#define UNIT 512
#define UNITS (GPU_PAGE / UNIT)
#define SMALL_MAX (1u << 20)
#define WALK_MAX 64 // pages examined before a new one is opened

struct small_page {
	struct small_page *next, *previous; // in arena.partial
	struct small_page *next_all;
	uint64_t page;
	unsigned room;    // free units
	unsigned run_max; // no free run is longer
	unsigned lowest;  // no free unit is below
	bool listed;
	uint64_t used[UNITS / 64];
	uint32_t size[UNITS]; // as requested, at the first unit of an allocation
};

struct page {
	struct small_page *small;
	uint64_t size;  // of a large allocation, at its first page
	uint32_t pages;
	bool managed;
};

static pthread_mutex_t gpu_lock[MAX_GPUS] = {[0 ... MAX_GPUS - 1] = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP};

// Only this process writes its slot, under gpu_lock, so no locked instruction is needed.
static void add(_Atomic uint64_t *counter, uint64_t n)
{
	uint64_t old = atomic_load_explicit(counter, memory_order_relaxed);
	atomic_store_explicit(counter, old + n, memory_order_relaxed);
}

void book_device(int gpu, uint64_t size, uint64_t count)
{
	pthread_mutex_lock(&gpu_lock[gpu]);
	struct gpu_books *g = &self->gpu[gpu];
	add(&g->device_bytes, size);
	add(&g->device_count, count);
	if (count == 1) {
		add(&g->total_bytes, size);
		add(&g->total_count, 1);
	}
	pthread_mutex_unlock(&gpu_lock[gpu]);
}

static void *reserve(size_t bytes, int protection)
{
	void *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

int arena_create(struct arena *a, int gpu)
{
	// Eight times the capacity, so fragmentation of addresses never matters.
	uint64_t pages = (gpu_capacity() / GPU_PAGE * 8 + 63) & ~63ull;
	char *base = reserve((pages + 1) * GPU_PAGE, PROT_NONE);
	uint64_t *used = reserve(pages / 8, PROT_READ | PROT_WRITE);
	struct page *page = reserve(pages * sizeof *page, PROT_READ | PROT_WRITE);
	if (!base || !used || !page)
		return OUT_OF_MEMORY;
	uint64_t aligned = ((uint64_t)base + GPU_PAGE - 1) & ~(GPU_PAGE - 1);
	if (aligned > (uint64_t)base)
		munmap(base, aligned - (uint64_t)base);
	munmap((void *)(aligned + pages * GPU_PAGE), (uint64_t)base + GPU_PAGE - aligned);
	// Other threads search for addresses without a lock: the arena gets addresses only once it is
	// complete.
	*a = (struct arena){.gpu = gpu, .pages = pages, .used = used, .page = page};
	atomic_thread_fence(memory_order_release);
	*(volatile uint64_t *)&a->base = aligned;
	return SUCCESS;
}

static bool bit(const uint64_t *map, uint64_t i) { return map[i / 64] >> (i % 64) & 1; }

static void fill(uint64_t *map, uint64_t from, uint64_t n, bool value)
{
	for (uint64_t end = from + n; from < end;) {
		uint64_t low = from % 64, count = 64 - low < end - from ? 64 - low : end - from;
		uint64_t mask = (count == 64 ? ~0ull : (1ull << count) - 1) << low;
		if (value)
			map[from / 64] |= mask;
		else
			map[from / 64] &= ~mask;
		from += count;
	}
}

// find_run returns the first run of n clear bits at or after from, or limit.
static uint64_t find_run(const uint64_t *map, uint64_t limit, uint64_t from, uint64_t n)
{
	for (uint64_t i = from; i + n <= limit;) {
		uint64_t clear = ~map[i / 64] >> (i % 64);
		if (!clear) {
			i = (i | 63) + 1;
			continue;
		}
		i += (uint64_t)__builtin_ctzll(clear);
		uint64_t end = i;
		while (end < limit && end - i < n) {
			uint64_t word = map[end / 64] >> (end % 64);
			uint64_t free_bits = word ? (uint64_t)__builtin_ctzll(word) : 64 - end % 64;
			end += free_bits;
			if (word)
				break;
		}
		if (end > limit)
			end = limit;
		if (end - i >= n)
			return i;
		i = end + 1;
	}
	return limit;
}

// Managed memory may be on the host; NVML's per-process figures exclude it.
static uint64_t take_pages(struct arena *a, uint64_t n, bool managed)
{
	uint64_t first = find_run(a->used, a->pages, a->lowest, n);
	if (first == a->pages || (!managed && !charge(a->gpu, &self->gpu[a->gpu].reserved, n * GPU_PAGE)))
		return a->pages;
	fill(a->used, first, n, true);
	if (first == a->lowest)
		a->lowest = first + n;
	return first;
}

static void give_pages(struct arena *a, uint64_t first, uint64_t n, bool managed)
{
	fill(a->used, first, n, false);
	if (first < a->lowest)
		a->lowest = first;
	if (!managed)
		atomic_fetch_sub(&self->gpu[a->gpu].reserved, n * GPU_PAGE);
}

static void unlist(struct arena *a, struct small_page *s)
{
	if (!s->listed)
		return;
	*(s->previous ? &s->previous->next : &a->partial) = s->next;
	if (s->next)
		s->next->previous = s->previous;
	s->listed = false;
}

static void list_first(struct arena *a, struct small_page *s)
{
	if (s->listed && a->partial == s)
		return;
	unlist(a, s);
	s->previous = NULL;
	s->next = a->partial;
	if (s->next)
		s->next->previous = s;
	a->partial = s;
	s->listed = true;
}

static struct small_page *open_small_page(struct arena *a)
{
	struct small_page *s = a->spare;
	if (!s) {
		s = calloc(1, sizeof *s);
		if (!s)
			return NULL;
		s->next_all = a->all;
		a->all = s;
		s->next = NULL;
		a->spare = s;
	}
	uint64_t page = take_pages(a, 1, false);
	if (page == a->pages)
		return NULL;
	a->spare = s->next;
	s->listed = false;
	s->page = page;
	s->room = s->run_max = UNITS;
	s->lowest = 0;
	a->page[page].small = s;
	list_first(a, s);
	return s;
}

static uint64_t take_units(struct small_page *s, unsigned n)
{
	if (s->room < n || s->run_max < n)
		return UNITS;
	uint64_t at = find_run(s->used, UNITS, s->lowest, n);
	if (at == UNITS)
		s->run_max = n - 1;
	return at;
}

static int alloc_small(struct arena *a, uint64_t size, uint64_t *address)
{
	unsigned n = (unsigned)((size + UNIT - 1) / UNIT), walked = 0;
	uint64_t at = UNITS;
	struct small_page *s = a->partial;
	for (; s && walked++ < WALK_MAX; s = s->next)
		if ((at = take_units(s, n)) != UNITS)
			break;
	if (at == UNITS) {
		if (!(s = open_small_page(a)))
			return OUT_OF_MEMORY;
		at = 0;
	}
	fill(s->used, at, n, true);
	s->size[at] = (uint32_t)size;
	s->room -= n;
	if (at == s->lowest)
		s->lowest = (unsigned)at + n;
	if (!s->room)
		unlist(a, s);
	*address = a->base + s->page * GPU_PAGE + at * UNIT;
	return SUCCESS;
}

static int alloc_large(struct arena *a, uint64_t size, bool managed, uint64_t *address)
{
	if (size > a->pages * GPU_PAGE)
		return OUT_OF_MEMORY;
	uint64_t n = (size + GPU_PAGE - 1) / GPU_PAGE;
	uint64_t first = take_pages(a, n, managed);
	if (first == a->pages)
		return OUT_OF_MEMORY;
	a->page[first] = (struct page){.size = size, .pages = (uint32_t)n, .managed = managed};
	*address = a->base + first * GPU_PAGE;
	if (managed) // the host may access it
		mprotect((void *)*address, n * GPU_PAGE, PROT_READ | PROT_WRITE);
	return SUCCESS;
}

int arena_alloc(struct arena *a, uint64_t size, bool managed, uint64_t *address)
{
	struct gpu_books *g = &self->gpu[a->gpu];
	pthread_mutex_lock(&gpu_lock[a->gpu]);
	int result = size <= SMALL_MAX && !managed ? alloc_small(a, size, address) : alloc_large(a, size, managed, address);
	if (result == SUCCESS) {
		add(managed ? &g->managed_bytes : &g->device_bytes, size);
		add(managed ? &g->managed_count : &g->device_count, 1);
		add(&g->total_bytes, size);
		add(&g->total_count, 1);
	}
	pthread_mutex_unlock(&gpu_lock[a->gpu]);
	return result;
}

static int free_small(struct arena *a, struct small_page *s, uint64_t offset)
{
	uint64_t at = offset / UNIT;
	if (offset % UNIT || !s->size[at])
		return INVALID_VALUE;
	struct gpu_books *g = &self->gpu[a->gpu];
	unsigned n = (s->size[at] + UNIT - 1) / UNIT;
	add(&g->device_bytes, -(uint64_t)s->size[at]);
	add(&g->device_count, -1ull);
	s->size[at] = 0;
	fill(s->used, at, n, false);
	s->room += n;
	s->run_max = UNITS;
	if (at < s->lowest)
		s->lowest = (unsigned)at;
	if (s->room < UNITS) {
		list_first(a, s);
		return SUCCESS;
	}
	unlist(a, s);
	a->page[s->page].small = NULL;
	give_pages(a, s->page, 1, false);
	s->next = a->spare;
	a->spare = s;
	return SUCCESS;
}

static int free_large(struct arena *a, uint64_t first)
{
	struct page *p = &a->page[first];
	struct gpu_books *g = &self->gpu[a->gpu];
	if (!p->size)
		return INVALID_VALUE;
	if (p->managed) {
		char *at = (char *)(a->base + first * GPU_PAGE);
		madvise(at, p->pages * GPU_PAGE, MADV_DONTNEED);
		mprotect(at, p->pages * GPU_PAGE, PROT_NONE);
	}
	add(p->managed ? &g->managed_bytes : &g->device_bytes, -p->size);
	add(p->managed ? &g->managed_count : &g->device_count, -1ull);
	give_pages(a, first, p->pages, p->managed);
	*p = (struct page){0};
	return SUCCESS;
}

int arena_free(struct arena *a, uint64_t address)
{
	int result = INVALID_VALUE;
	pthread_mutex_lock(&gpu_lock[a->gpu]);
	// Its context may have been destroyed after the address was found: then it has no pages.
	uint64_t page = (address - a->base) / GPU_PAGE, offset = (address - a->base) % GPU_PAGE;
	if (page < a->pages && bit(a->used, page)) {
		if (a->page[page].small)
			result = free_small(a, a->page[page].small, offset);
		else if (!offset)
			result = free_large(a, page);
	}
	pthread_mutex_unlock(&gpu_lock[a->gpu]);
	return result;
}

uint64_t arena_size(struct arena *a, uint64_t address)
{
	uint64_t size = 0;
	pthread_mutex_lock(&gpu_lock[a->gpu]);
	uint64_t page = (address - a->base) / GPU_PAGE, offset = (address - a->base) % GPU_PAGE;
	if (page >= a->pages) {
		pthread_mutex_unlock(&gpu_lock[a->gpu]);
		return 0;
	}
	struct small_page *s = a->page[page].small;
	if (s && offset % UNIT == 0)
		size = s->size[offset / UNIT];
	else if (!s && !offset)
		size = a->page[page].size;
	pthread_mutex_unlock(&gpu_lock[a->gpu]);
	return size;
}

void arena_destroy(struct arena *a)
{
	pthread_mutex_lock(&gpu_lock[a->gpu]);
	for (uint64_t i = 0; i < a->pages; i++) {
		if (a->used[i / 64] == 0) {
			i |= 63;
			continue;
		}
		struct small_page *s = a->page[i].small;
		for (unsigned u = 0; s && a->page[i].small && u < UNITS; u++)
			if (s->size[u])
				free_small(a, s, (uint64_t)u * UNIT);
		if (a->page[i].size)
			free_large(a, i);
	}
	for (struct small_page *s = a->all, *next; s; s = next) {
		next = s->next_all;
		free(s);
	}
	// Another arena may reuse the addresses as soon as they are freed.
	struct arena old = *a;
	*a = (struct arena){.gpu = old.gpu};
	atomic_thread_fence(memory_order_seq_cst);
	munmap((void *)old.base, old.pages * GPU_PAGE);
	munmap(old.used, old.pages / 8);
	munmap(old.page, old.pages * sizeof *old.page);
	pthread_mutex_unlock(&gpu_lock[a->gpu]);
}
