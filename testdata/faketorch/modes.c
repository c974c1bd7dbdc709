// SPDX-License-Identifier: Apache-2.0
// Many tensors at once.
#include "tensors_c.h"
#include <pthread.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <time.h>

#define SLOTS 8192

struct slot {
	void *p;
	int site, device;
};
static __thread struct slot *slots; // of run_random, separate in each thread

uint64_t nanoseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

// Most tensors are small; most bytes are in large ones.
static size_t random_size(uint64_t *r)
{
	uint64_t kind = next(r) % 100;
	if (kind < 70)
		return 1 + next(r) % (512ull << next(r) % 8);
	if (kind < 98)
		return 1 + next(r) % (65536ull << next(r) % 6);
	return 1 + next(r) % (16 << 20);
}

void run_random(const char *arguments, const char *line)
{
	uint64_t seed = 0, r, calls = 0;
	int devices = 1;
	if (sscanf(arguments, "%zu %zu %d", &seed, &calls, &devices) < 2)
		die(line, "SEED CALLS [DEVICES]", 0);
	r = seed * 1000003;
	if (!slots)
		slots = calloc(SLOTS, sizeof *slots);
	while (calls--) {
		struct slot *s = &slots[next(&r) % SLOTS];
		size_t got;
		if (s->p) {
			give(s->p, s->site, s->device);
			s->p = NULL;
			continue;
		}
		s->site = (int)(next(&r) % SITES * (next(&r) % SITES) / SITES); // site_0 has the most
		s->device = (int)(next(&r) % (uint64_t)devices);
		if (!(s->p = take(s->site, random_size(&r), s->device, &got)))
			die(line, "out of memory", 0);
		if (next(&r) % 4096 == 0)
			torch_empty_cache();
	}
}

void free_random(const char *arguments, const char *line)
{
	int part = atoi(arguments);
	if (!slots || part < 1)
		die(line, "nothing to free", part);
	for (int i = 0; i < SLOTS; i += part)
		if (slots[i].p) {
			give(slots[i].p, slots[i].site, slots[i].device);
			slots[i].p = NULL;
		}
}

void run_live(const char *arguments, const char *line)
{
	size_t count = 0, size = 0, got;
	if (sscanf(arguments, "%zu %zu", &count, &size) < 1)
		die(line, "COUNT [SIZE]", 0);
	for (size_t i = 0; i < count; i++)
		if (!take((int)(i % SITES), size, 0, &got))
			die(line, "out of memory", (long)i);
}

static struct rate {
	double seconds, per_second;
	size_t size;
} rate;
static _Atomic uint64_t pairs;

// A batch of pairs, then a pause until the next one is due.
FRAME static void *rate_thread(void *argument)
{
	int site = (int)(intptr_t)argument % SITES;
	uint64_t begin = nanoseconds(), end = begin + (uint64_t)(rate.seconds * 1e9), done = 0;
	while (nanoseconds() < end) {
		for (int i = 0; i < 64; i++)
			torch_free(take_only(site, rate.size, 0));
		done += 64;
		uint64_t due = rate.per_second ? begin + (uint64_t)((double)done * 2e9 / rate.per_second) : 0, now = nanoseconds();
		if (due > now)
			nanosleep(&(struct timespec){(time_t)((due - now) / 1000000000), (long)((due - now) % 1000000000)}, NULL);
	}
	pairs += done;
	return NULL;
}

// run_rate: the rate is the total of all threads.
void run_rate(const char *arguments, const char *line)
{
	int threads = 0;
	pthread_t id[64];
	rate.size = 4096;
	rate.per_second = 0;
	if (sscanf(arguments, "%d %lf %lf %zu", &threads, &rate.seconds, &rate.per_second, &rate.size) < 2 || threads < 1 || threads > 64)
		die(line, "THREADS SECONDS [EVENTS_PER_SECOND [SIZE]]", threads);
	rate.per_second /= threads;
	pairs = 0;
	uint64_t begin = nanoseconds();
	for (intptr_t i = 0; i < threads; i++)
		pthread_create(&id[i], NULL, rate_thread, (void *)i);
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
	uint64_t took = nanoseconds() - begin;
	printf("rate %zu %zu\n", 2 * pairs, took), fflush(stdout);
}
