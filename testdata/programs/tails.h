// SPDX-License-Identifier: Apache-2.0
// Histograms of the time that single calls take, for medians and tails.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TAIL_BITS 6 // buckets per power of two: 64, so a value is right to 1 %
#define TAIL_BUCKETS ((64 - TAIL_BITS + 1) << TAIL_BITS)

struct tails {
	uint32_t alloc[TAIL_BUCKETS], free[TAIL_BUCKETS], pair[TAIL_BUCKETS];
};

static inline uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline unsigned tail_bucket(uint64_t ns)
{
	if (ns < 1 << TAIL_BITS)
		return (unsigned)ns;
	int shift = 63 - __builtin_clzll(ns) - TAIL_BITS;
	return (unsigned)((uint64_t)(shift + 1) << TAIL_BITS | (ns >> shift & ((1 << TAIL_BITS) - 1)));
}

// The middle of a bucket.
static inline double tail_value(unsigned bucket)
{
	if (bucket < 1 << TAIL_BITS)
		return bucket;
	int shift = (int)(bucket >> TAIL_BITS) - 1;
	uint64_t least = ((1ull << TAIL_BITS) | (bucket & ((1 << TAIL_BITS) - 1))) << shift;
	return (double)least + (double)(1ull << shift) / 2;
}

// What two readings of the clock are apart: the median of 1,001.
static inline uint64_t clock_cost(void)
{
	uint32_t apart[1024] = {0}, seen = 0;
	for (int i = 0; i < 1001; i++) {
		uint64_t begin = now(), ns = now() - begin;
		apart[ns < 1023 ? ns : 1023]++;
	}
	for (unsigned ns = 0; ns < 1024; ns++)
		if ((seen += apart[ns]) > 500)
			return ns;
	return 0;
}

static inline void tail_add(uint32_t *histogram, uint64_t ns, uint64_t cost)
{
	histogram[tail_bucket(ns > cost ? ns - cost : 0)]++;
}

// Times n pairs one by one. The calls share one call path.
static inline void tails_measure(struct tails *t, long n, int (*alloc)(void **, size_t), int (*release)(void *), size_t size)
{
	uint64_t cost = clock_cost();
	for (long i = 0; i < n; i++) {
		void *p;
		uint64_t begin = now();
		int result = alloc(&p, size);
		uint64_t between = now();
		if (result) {
			fprintf(stderr, "timed allocation: %d\n", result);
			exit(1);
		}
		release(p);
		uint64_t end = now();
		tail_add(t->alloc, between - begin, cost);
		tail_add(t->free, end - between, cost);
		tail_add(t->pair, end - begin, 2 * cost);
	}
}

static inline double tail_share(const uint32_t *histogram, double share)
{
	uint64_t all = 0, seen = 0;
	for (unsigned i = 0; i < TAIL_BUCKETS; i++)
		all += histogram[i];
	for (unsigned i = 0; i < TAIL_BUCKETS; i++)
		if ((seen += histogram[i]) && (double)seen >= share * (double)all)
			return tail_value(i);
	return 0;
}

static inline void tails_merge(struct tails *all, const struct tails *one)
{
	for (unsigned i = 0; i < TAIL_BUCKETS; i++) {
		all->alloc[i] += one->alloc[i];
		all->free[i] += one->free[i];
		all->pair[i] += one->pair[i];
	}
}

// Prints "alloc_p50 NS", "alloc_p999 NS", and the same of frees and pairs.
static inline void tails_print(const struct tails *t)
{
	const uint32_t *all[] = {t->alloc, t->free, t->pair};
	const char *names[] = {"alloc", "free", "pair"};
	for (int i = 0; i < 3; i++)
		printf("%s_p50 %.0f\n%s_p999 %.0f\n", names[i], tail_share(all[i], 0.5), names[i], tail_share(all[i], 0.999));
}
