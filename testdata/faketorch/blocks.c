// SPDX-License-Identifier: Apache-2.0
// Blocks: allocate, free, split and merge. As in PyTorch, the allocator holds the device's lock
// while it reports to a profiler.
#include "allocator.h"
#include <stdlib.h>

#ifndef NO_TOTALS
#define TELL(block, size, d) report((block)->address, size, reported_allocated(d), reported_reserved(d), c10_device(1, (d)->ordinal))
#define TELL_CPU(address, size, allocated, reserved) report(address, size, allocated, reserved, c10_device(0, -1))
#define PARAMETERS void *, long, long, long, unsigned long
#else
#define TELL(block, size, d) report(block, size, c10_device(1, (d)->ordinal))
#define TELL_CPU(address, size, allocated, reserved) report(address, size, c10_device(0, -1))
#define PARAMETERS void *, long, unsigned long
#endif
#ifdef REPORT
void report(PARAMETERS) __asm__(REPORT);
#else
#define report(...) ((void)0)
#endif
#ifdef FAILED
void failed(long, long, long, unsigned long) __asm__(FAILED);
#else
#define failed(...) ((void)0)
#endif
#define EXPORT __attribute__((visibility("default"), noipa))
int c10_present(void);

static struct device devices[MAX_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static volatile long lie_allocated, lie_reserved;
static _Atomic long cpu_allocated;

static void prepare(void)
{
	for (int i = 0; i < MAX_DEVICES; i++) {
		pthread_mutex_init(&devices[i].lock, NULL);
		devices[i].ordinal = i;
		devices[i].pool[0].device = devices[i].pool[1].device = &devices[i];
		devices[i].pool[1].small = c10_present();
	}
}

// c10_device is passed as compilers pass a two-byte structure: with garbage in the upper bytes.
static inline unsigned long c10_device(int type, int index)
{
	static __thread unsigned long rest = 0x5eed5eed5eed0000;
	rest += 0x0123456789ab0000;
	return rest | (unsigned long)(index & 0xff) << 8 | (unsigned long)type;
}

__attribute__((unused)) static long reported_allocated(const struct device *d) { return (long)d->totals.allocated + lie_allocated; }
__attribute__((unused)) static long reported_reserved(const struct device *d) { return (long)d->totals.reserved + lie_reserved; }

// split leaves b with size bytes and puts the rest into a new block after it.
void split(struct block *b, size_t size)
{
	struct block *rest = calloc(1, sizeof *rest);
	*rest = (struct block){.pool = b->pool, .address = b->address + size, .size = b->size - size, .before = b, .after = b->after,
		.free = b->free, .mapped = b->mapped};
	if (b->after)
		b->after->before = rest;
	b->after = rest;
	b->size = size;
}

static void swallow_next(struct block *b)
{
	struct block *gone = b->after;
	b->size += gone->size;
	b->after = gone->after;
	if (b->after)
		b->after->before = b;
	free(gone);
}

// merge joins a free block, which is in no bin, with its free neighbors.
struct block *merge(struct block *b)
{
	struct block *after = b->after, *before = b->before;
	if (after && after->free && after->mapped == b->mapped) {
		if (after->mapped)
			take_free(after);
		swallow_next(b);
	}
	if (before && before->free && before->mapped == b->mapped) {
		if (before->mapped)
			take_free(before);
		swallow_next(before);
		b = before;
	}
	return b;
}

static struct block *allocate(struct pool *pool, size_t size)
{
	struct device *d = pool->device;
	struct block *b = find_free(pool, size);
	if (!b && !add_segment(pool, size)) {
		give_back_cached(d);
		d->totals.retries++;
		if (!add_segment(pool, size))
			return NULL;
	}
	if (!b)
		b = find_free(pool, size);
	take_free(b);
	if (b->size - size >= (pool->small || expandable() ? 512 : SMALL_REQUEST + 1)) {
		split(b, size);
		put_free(b->after);
	}
	b->free = false;
	b->given = marks;
	return b;
}

EXPORT void *torch_alloc(size_t size, int device, size_t *got)
{
	pthread_once(&once, prepare);
	struct device *d = &devices[device];
	size = size ? (size + 511) & ~(size_t)511 : 512;
	on_device(device);
	pthread_mutex_lock(&d->lock);
	struct block *b = allocate(&d->pool[size <= SMALL_REQUEST], size);
	void *address = NULL;
	if (b) {
		address = b->address;
		*got = b->size;
		table_put(d, b);
		d->totals.allocated += b->size;
		d->totals.live++;
		if (d->totals.peak < d->totals.allocated)
			d->totals.peak = d->totals.allocated;
		TELL(b, (long)b->size, d);
	} else {
		d->totals.failures++;
		failed((long)size, reported_allocated(d), reported_reserved(d), c10_device(1, device));
	}
	pthread_mutex_unlock(&d->lock);
	return address;
}

EXPORT size_t torch_free(void *address)
{
	for (int i = 0; i < MAX_DEVICES; i++) {
		struct device *d = &devices[i];
		pthread_mutex_lock(&d->lock);
		struct block *b = table_take(d, address);
		size_t size = b ? b->size : 0;
		if (b) {
			d->totals.allocated -= size;
			d->totals.live--;
			TELL(b, -(long)size, d);
			b->free = true;
			put_free(merge(b));
		}
		pthread_mutex_unlock(&d->lock);
		if (b)
			return size;
	}
	abort();
}

EXPORT void torch_sleep(bool wake)
{
	pthread_once(&once, prepare);
	for (int i = 0; i < MAX_DEVICES; i++) {
		pthread_mutex_lock(&devices[i].lock);
		if (devices[i].totals.reserved) {
			on_device(i);
			pool_sleep(&devices[i].pool[0], wake);
		}
		pthread_mutex_unlock(&devices[i].lock);
	}
}

EXPORT void torch_empty_cache(void)
{
	pthread_once(&once, prepare);
	for (int i = 0; i < MAX_DEVICES; i++) {
		pthread_mutex_lock(&devices[i].lock);
		if (devices[i].totals.reserved) {
			on_device(i);
			give_back_cached(&devices[i]);
		}
		pthread_mutex_unlock(&devices[i].lock);
	}
}

EXPORT void torch_totals(int device, struct totals *t)
{
	pthread_once(&once, prepare);
	struct device *d = &devices[device];
	pthread_mutex_lock(&d->lock);
	*t = d->totals;
	for (int i = 0; i < 2; i++)
		for (int n = 0; n < BINS; n++)
			for (struct block *b = d->pool[i].bin[n]; b; b = b->next)
				if (t->largest < b->size)
					t->largest = b->size;
	count_since(d, t);
	pthread_mutex_unlock(&d->lock);
}

EXPORT void torch_mark(void) { marks++; }

EXPORT void torch_lie(long allocated, long reserved)
{
	lie_allocated = allocated;
	lie_reserved = reserved;
}

EXPORT void *torch_cpu_alloc(size_t size, bool mapped)
{
	void *p = aligned_alloc(mapped ? 4096 : 64, (size + 4095) & ~(size_t)4095);
	long allocated = mapped ? 0 : (cpu_allocated += (long)size);
	(void)allocated;
	TELL_CPU(p, (long)size, allocated, mapped ? (long)size : 0);
	return p;
}

EXPORT void torch_cpu_free(void *p, size_t size, bool mapped)
{
	long allocated = mapped ? 0 : (cpu_allocated -= (long)size);
	(void)allocated;
	TELL_CPU(p, -(long)size, allocated, 0);
	free(p);
}
