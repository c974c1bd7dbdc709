// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "blocks.h"
#include <stdlib.h>
#include <sys/mman.h>

#define BUCKETS 8192

pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *buckets[BUCKETS];

static struct block **bucket(uint64_t key) { return &buckets[(key * 0x9e3779b97f4a7c15ull) >> 51]; }

struct block *block_add(enum kind kind, uint64_t key, int gpu, uint64_t size, struct context *owner)
{
	struct block *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	if (!key) // a handle: any unique number works
		key = (uint64_t)b;
	*b = (struct block){.next = *bucket(key), .key = key, .kind = kind, .gpu = gpu, .size = size, .owner = owner, .references = 1};
	*bucket(key) = b;
	return b;
}

struct block *block_find(uint64_t key, unsigned kinds)
{
	for (struct block *b = *bucket(key); b; b = b->next)
		if (b->key == key && (b->kind & kinds))
			return b;
	return NULL;
}

void blocks_each(void (*visit)(struct block *, void *), void *argument)
{
	for (int i = 0; i < BUCKETS; i++)
		for (struct block *b = buckets[i], *next; b; b = next) {
			next = b->next;
			visit(b, argument);
		}
}

static void refund(struct block *b)
{
	struct gpu_books *g = &self->gpu[b->gpu];
	switch (b->kind) {
	case LOW: low_refund(b); break;
	case ASYNC: pools_refund(b); break;
	case ARRAY:
	case MIPMAP: BOOK_OUT(g, array, b->size); break;
	case REGISTERED: BOOK_OUT(self, registered, b->size); break;
	case OPENED:
	case POINTER:
	case EXTERNAL: BOOK_OUT(g, imported, b->size); break;
	case GRAPH_MEMORY: graph_memory_refund(b); break;
	case POOL: pools_end(b); break;
	case PHYSICAL: physical_refund(b); break;
	case GRAPH:
	case GRAPH_EXEC: graph_end(b); break;
	case GREEN:
	case MODULE:
	case LIBRARY:
	case BUFFER:
	case MAPPED_MIPMAP: break;
	}
	atomic_fetch_sub(&g->reserved, b->charged);
	if (b->kind & (OPENED | POINTER | BUFFER | GRAPH_MEMORY))
		addresses_give(b->key, b->size);
}

void block_drop(struct block *b)
{
	struct block **at = bucket(b->key);
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	refund(b);
	free(b);
}

int blocks_drop(uint64_t key, unsigned kinds)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = block_find(key, kinds);
	if (b)
		block_drop(b);
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : INVALID_VALUE;
}

int graph_memory_free(struct block *b);

int blocks_free(uint64_t address)
{
	int result = INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = block_find(address, LOW | ASYNC | POINTER | BUFFER | GRAPH_MEMORY);
	if (b && b->kind == GRAPH_MEMORY)
		result = graph_memory_free(b);
	else if (b) {
		block_drop(b);
		result = SUCCESS;
	}
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

static void drop_owned(struct block *b, void *owner)
{
	if (b->owner == owner)
		block_drop(b);
}

void blocks_release(struct context *c, bool last)
{
	pthread_mutex_lock(&blocks_lock);
	blocks_each(drop_owned, c);
	pools_release(c->gpu, last);
	pthread_mutex_unlock(&blocks_lock);
}

uint64_t addresses_take(uint64_t size)
{
	uint64_t whole = whole_pages(size), all = whole + GPU_PAGE;
	if (size > 1ull << 45)
		return 0;
	char *base = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return 0;
	uint64_t at = whole_pages((uint64_t)base), before = at - (uint64_t)base;
	if (before)
		munmap(base, before);
	if (GPU_PAGE - before)
		munmap((void *)(at + whole), GPU_PAGE - before);
	return at;
}

void addresses_give(uint64_t address, uint64_t size) { munmap((void *)address, whole_pages(size)); }
