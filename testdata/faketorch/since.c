// SPDX-License-Identifier: Apache-2.0
// What was allocated and taken since the latest mark, as seen by an observer that attached then.
#include "allocator.h"

static void count_block(const struct block *b, struct totals *t)
{
	if (!b->free && b->given == marks) {
		t->since.allocated += b->size;
		t->since.live++;
	}
}

// note counts bytes of a segment since the mark. run is the number of free bytes right before them.
static void note(bool free, size_t bytes, struct totals *t, size_t *run)
{
	t->since.segments += bytes;
	if (free) {
		t->since.cached += bytes;
		*run += bytes;
		if (t->since.largest < *run)
			t->since.largest = *run;
	} else
		*run = 0;
}

static void count_pages(const struct pool *pool, struct totals *t)
{
	size_t run = 0, size = page_of(pool);
	for (const struct block *b = pool->range; b; b = b->after) {
		count_block(b, t);
		if (!b->mapped) {
			run = 0;
			continue;
		}
		size_t at = (size_t)(b->address - pool->range->address), end = at + b->size;
		while (at < end) {
			size_t page = at / size, next = (page + 1) * size < end ? (page + 1) * size : end;
			uint32_t taken;
			if (page_taken(pool, page, &taken) && taken == marks)
				note(b->free, next - at, t, &run);
			else
				run = 0;
			at = next;
		}
	}
}

void count_since(struct device *d, struct totals *t)
{
	for (int i = 0; i < 2; i++) {
		count_pages(&d->pool[i], t);
		for (const struct block *first = d->pool[i].segments; first; first = first->following) {
			size_t run = 0;
			for (const struct block *b = first; b; b = b->after) {
				count_block(b, t);
				if (first->taken == marks)
					note(b->free, b->size, t, &run);
			}
		}
	}
}
