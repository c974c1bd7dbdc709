// SPDX-License-Identifier: Apache-2.0
// Random valid sequences of calls. Each thread has its own objects, frees them in any order from
// any device, and ends the program on any unexpected result.
#include "calls_random.h"
#include "wait.h"
#include <stdlib.h>
#include <string.h>

static unsigned long long random_next(struct worker *w) // xorshift64*
{
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return (w->random * 0x2545f4914f6cdd1dull) >> 16;
}

unsigned long long below(struct worker *w, unsigned long long n) { return random_next(w) % n; }

uint64_t random_size(struct worker *w)
{
	static const uint64_t most[] = {4096, 1 << 20, 3 << 20, 12 << 20};
	return 1 + below(w, most[below(w, 4)]);
}

bool run_one(const char *name, bool may_lack, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
	uint64_t argument[8] = {a, b, c, d, e};
	int result = call(function(name), argument);
	if (result && !(may_lack && result == 2)) {
		fprintf(stderr, "calls_c: random: %s: result (%d)\n", name, result);
		exit(1);
	}
	return !result;
}

static void free_one(struct worker *w, int i)
{
	struct object o = w->live[i];
	w->live[i] = w->live[--w->lives];
	release(w, &o);
}

static void expect(const char *name, uint64_t a, uint64_t b, int result)
{
	uint64_t argument[8] = {a, b};
	int got = call(function(name), argument);
	if (got != result) {
		fprintf(stderr, "calls_c: random: %s: result (%d)\n", name, got);
		exit(1);
	}
}

static void other_call(struct worker *w)
{
	uint64_t ignored = 0, pool;
	switch (below(w, 6)) {
	case 0: expect("cudaMalloc", (uint64_t)&ignored, 1ull << 44, 2); break;
	case 1: expect("cuMemFree_v2", 0xdead000000123400, 0, 1); break;
	case 2: MUST(below(w, 2) ? "cudaDeviceSynchronize" : "cuCtxSynchronize", 0, 0, 0, 0, 0); break;
	case 3:
		MUST("cuDeviceGetDefaultMemPool", &pool, w->device, 0, 0, 0);
		MUST("cuMemPoolTrimTo", pool, below(w, 64 << 20), 0, 0, 0);
		break;
	default:
		w->device = (int)below(w, (unsigned long long)w->gpus);
		MUST("cudaSetDevice", w->device, 0, 0, 0, 0);
	}
}

// The program stops with all its threads before call 0 and after equal parts of the calls.
static void stop(struct worker *w, int call)
{
	if (!w->stops || call % (w->calls / w->stops) || call / (w->calls / w->stops) >= w->stops)
		return;
	pthread_barrier_wait(w->meet);
	pthread_barrier_wait(w->meet);
}

static void *run_thread(void *argument)
{
	struct worker *w = argument;
	MUST("cudaSetDevice", w->device, 0, 0, 0, 0);
	for (int i = 0; i < w->calls; i++) {
		stop(w, i);
		if (below(w, 12) == 0) {
			other_call(w);
		} else if (w->lives == LIVE_MAX || (w->lives && below(w, 100) < 48)) {
			free_one(w, (int)below(w, (unsigned long long)w->lives));
		} else {
			struct object o = {.what = (enum what)below(w, w->folder ? ALL_KINDS : KINDS), .runtime = below(w, 2), .size = random_size(w),
					   .device = (int)below(w, (unsigned long long)w->gpus)};
			if (!(w->no_contexts && o.what == CONTEXT) && allocate(w, &o))
				w->live[w->lives++] = o;
		}
	}
	while (w->free_all && w->lives)
		free_one(w, w->lives - 1);
	return NULL;
}

struct options {
	int threads, gpus, stops;
	bool wait, free_all, no_contexts;
	const char *folder;
};

static struct options read_options(int argc, char **argv)
{
	struct options o = {.threads = 1, .gpus = 1};
	if (argc < 4) {
		fprintf(stderr, "calls_c: --random SEED CALLS [--threads N] [--gpus N] [--stops N] [--share FOLDER] [--no-contexts] [--free] [--wait]\n");
		exit(1);
	}
	for (int i = 4; i < argc; i++) {
		o.wait |= !strcmp(argv[i], "--wait");
		o.free_all |= !strcmp(argv[i], "--free");
		o.no_contexts |= !strcmp(argv[i], "--no-contexts");
		if (i + 1 == argc)
			break;
		if (!strcmp(argv[i], "--threads"))
			o.threads = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--gpus"))
			o.gpus = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--stops"))
			o.stops = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--share"))
			o.folder = argv[++i];
	}
	return o;
}

// run_stops starts with one small allocation on each GPU, so that the driver's figures are stable
// at the first stop.
static void run_stops(const struct options *o, pthread_barrier_t *meet)
{
	uint64_t ignored;
	for (int i = 0; i < o->gpus && o->stops; i++) {
		MUST("cudaSetDevice", i, 0, 0, 0, 0);
		MUST("cudaMalloc", &ignored, 4096, 0, 0, 0);
	}
	for (int i = 0; i < o->stops; i++) {
		pthread_barrier_wait(meet);
		printf("random stop %d\n", i), fflush(stdout);
		wait_go(true);
		pthread_barrier_wait(meet);
	}
}

bool run_random(int argc, char **argv)
{
	struct options o = read_options(argc, argv);
	struct worker *w = calloc((size_t)o.threads, sizeof *w);
	pthread_barrier_t meet;
	pthread_barrier_init(&meet, NULL, (unsigned)o.threads + 1);
	if (o.folder) {
		MUST("cudaSetDevice", 0, 0, 0, 0, 0);
		share_begin(o.gpus);
	}
	for (int i = 0; i < o.threads; i++) {
		w[i] = (struct worker){.random = (strtoull(argv[2], NULL, 0) + 1) * 0x9e3779b97f4a7c15ull + (unsigned long long)i * 0xbf58476d1ce4e5b9ull,
				       .calls = atoi(argv[3]) / o.threads, .gpus = o.gpus, .device = i % o.gpus, .stops = o.stops,
				       .free_all = o.free_all, .no_contexts = o.no_contexts, .folder = o.folder, .meet = &meet};
		if (pthread_create(&w[i].id, NULL, run_thread, &w[i]) != 0)
			exit(1);
	}
	run_stops(&o, &meet);
	for (int i = 0; i < o.threads; i++)
		pthread_join(w[i].id, NULL);
	pthread_barrier_destroy(&meet);
	free(w);
	return o.wait;
}
