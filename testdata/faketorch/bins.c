// SPDX-License-Identifier: Apache-2.0
// Finds blocks: free ones by size, live ones by address.
#include "allocator.h"
#include <stdlib.h>

static size_t bin_of(const struct pool *pool, size_t size)
{
	size_t bin = size >> (pool->small ? 9 : 21);
	return bin < BINS ? bin : BINS - 1;
}

void put_free(struct block *b)
{
	size_t n = bin_of(b->pool, b->size);
	struct block **bin = &b->pool->bin[n];
	b->previous = NULL;
	b->next = *bin;
	if (*bin)
		(*bin)->previous = b;
	*bin = b;
	b->pool->used[n / 64] |= 1ull << n % 64;
}

void take_free(struct block *b)
{
	size_t n = bin_of(b->pool, b->size);
	if (b->next)
		b->next->previous = b->previous;
	if (b->previous)
		b->previous->next = b->next;
	else if (!(b->pool->bin[n] = b->next))
		b->pool->used[n / 64] &= ~(1ull << n % 64);
}

struct block *find_free(struct pool *pool, size_t size)
{
	size_t n = bin_of(pool, size);
	struct block *best = NULL;
	for (struct block *b = pool->bin[n]; b; b = b->next)
		if (b->size >= size && (!best || b->size < best->size))
			best = b;
	uint64_t word = n % 64 == 63 ? 0 : pool->used[n / 64] & ~0ull << (n % 64 + 1);
	for (size_t w = n / 64; !best; word = pool->used[w]) {
		if (word)
			best = pool->bin[w * 64 + (size_t)__builtin_ctzll(word)];
		else if (++w == BINS / 64)
			break;
	}
	return best;
}

static size_t slot_of(const struct device *d, const void *address)
{
	return (size_t)((uint64_t)address / 512 * 0x9e3779b97f4a7c15ull >> 20) & (d->room - 1);
}

static void grow(struct device *d)
{
	struct block **old = d->table;
	size_t room = d->room;
	d->room = room ? room * 2 : 1024;
	d->table = calloc(d->room, sizeof *d->table);
	for (size_t i = 0; i < room; i++) {
		size_t at;
		if (!old[i])
			continue;
		for (at = slot_of(d, old[i]->address); d->table[at]; at = (at + 1) & (d->room - 1))
			;
		d->table[at] = old[i];
	}
	free(old);
}

void table_put(struct device *d, struct block *b)
{
	if (d->totals.live * 2 >= d->room)
		grow(d);
	size_t at = slot_of(d, b->address);
	while (d->table[at])
		at = (at + 1) & (d->room - 1);
	d->table[at] = b;
}

struct block *table_take(struct device *d, void *address)
{
	size_t mask = d->room - 1;
	if (!d->room)
		return NULL;
	size_t at = slot_of(d, address);
	while (d->table[at] && d->table[at]->address != address)
		at = (at + 1) & mask;
	struct block *b = d->table[at];
	if (!b)
		return NULL;
	// Close the gap so that no later search stops there.
	for (size_t next = at;;) {
		next = (next + 1) & mask;
		if (!d->table[next])
			break;
		size_t home = slot_of(d, d->table[next]->address);
		if (((next - home) & mask) >= ((next - at) & mask)) {
			d->table[at] = d->table[next];
			at = next;
		}
	}
	d->table[at] = NULL;
	return b;
}
