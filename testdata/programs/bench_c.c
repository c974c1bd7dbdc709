// SPDX-License-Identifier: Apache-2.0
// bench_c LIB DEPTH COUNT [options]: runs COUNT alloc/free pairs in a tight loop below DEPTH
// functions without frame pointers; LIB is cudart or cuda. Prints "ns_per_pair X" (median of the
// chunks of all threads), "pairs N" and "pairs_per_s N" (the sum of the threads).
//
//   --threads N    the same in N threads at once
//   --wait         print "ready PID" and wait for SIGUSR1 or a line on stdin before measuring
//   --seconds S    run for S seconds instead of COUNT pairs
//   --size BYTES   of one allocation (default 4096)
//   --rate R       at most R pairs per second and thread
//   --live N       keep N allocations while measuring (of --live-size BYTES, default 512)
//   --sites N      make them (at least one each) from N distinct stacks
//   --split        after each chunk of pairs, as many allocations and then their frees; also
//                  print "ns_per_alloc X" and "ns_per_free X" (of the first thread)
//   --tails        after each chunk of pairs, as many timed one by one; also print tails.h's figures
//   --paths N      allocate from N distinct stacks in turn while measuring (not with --split)
//   --keep         free no allocation made while measuring (not with --split)
//   --late         make the allocations of --live after measuring
//   --through FILE allocate with posix_memalign and free of that library ("-": of the program
//                  itself), which malloc profilers trace
//   --hold         after measuring print "done" and wait again
// With --keep or --late, it also prints "allocations N", all that it made, and "live_bytes N".
#define _GNU_SOURCE
#include "cudart.h"
#include "tails.h"
#include "wait.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FRAME __attribute__((noipa))
#define CHUNK 1000
#define MAX_CHUNKS (1 << 20)

static struct options {
	bool cuda, wait, hold, split, keep, late, through, tails;
	int depth, threads;
	long count, rate, live, sites, paths;
	double seconds;
	size_t size, live_size;
} options = {.depth = 30, .threads = 1, .size = 4096, .live_size = 512};

static int (*cu_alloc)(uint64_t *, size_t), (*cu_free)(uint64_t), (*cu_set)(void *);
static int (*through_alloc)(void **, size_t, size_t);
static void (*through_free)(void *);
static void *context;

struct run {
	pthread_t thread;
	float *chunk; // ns per pair
	long chunks, pairs;
	float *alloc, *free; // ns per call of the chunks of --split
	long splits;
	struct tails *tails;
	uint64_t ns; // of all chunks
};

static void die(const char *what, int result)
{
	fprintf(stderr, "bench_c: %s: %d\n", what, result);
	exit(1);
}

// The bits of a number select one of two functions on each level: one stack per number.
FRAME static int site_alloc(void **p, size_t size)
{
	if (options.through)
		return through_alloc(p, 16, size);
	return options.cuda ? cu_alloc((uint64_t *)p, size) : cudaMalloc(p, size);
}
static int release(void *p)
{
	if (!options.through)
		return options.cuda ? cu_free((uint64_t)p) : cudaFree(p);
	through_free(p);
	return 0;
}
static int site_left(void **p, size_t size, unsigned long path, int level);
FRAME static int site_right(void **p, size_t size, unsigned long path, int level)
{
	if (!level)
		return site_alloc(p, size);
	return path & 1 ? site_right(p, size, path >> 1, level - 1) : site_left(p, size, path >> 1, level - 1);
}
FRAME static int site_left(void **p, size_t size, unsigned long path, int level)
{
	if (!level)
		return site_alloc(p, size);
	return path & 1 ? site_right(p, size, path >> 1, level - 1) : site_left(p, size, path >> 1, level - 1);
}

// Enough levels for n distinct stacks.
static int levels(long n)
{
	int level = 1;
	while ((1l << level) < n)
		level++;
	return level;
}

FRAME static long pairs_paths(long n)
{
	int level = levels(options.paths);
	for (long i = 0; i < n; i++) {
		void *p;
		int result = site_left(&p, options.size, (unsigned long)(i % options.paths), level);
		if (result)
			die("allocation", result);
		if (!options.keep)
			release(p);
	}
	return n;
}

FRAME static long pairs_through(long n)
{
	for (long i = 0; i < n; i++) {
		void *p;
		int result = through_alloc(&p, 16, options.size);
		if (result)
			die("posix_memalign", result);
		through_free(p);
	}
	return n;
}

FRAME static long pairs_cudart(long n)
{
	for (long i = 0; i < n; i++) {
		void *p;
		int result = cudaMalloc(&p, options.size);
		if (result)
			die("cudaMalloc", result);
		cudaFree(p);
	}
	return n;
}

FRAME static long pairs_cuda(long n)
{
	for (long i = 0; i < n; i++) {
		uint64_t p;
		int result = cu_alloc(&p, options.size);
		if (result)
			die("cuMemAlloc_v2", result);
		cu_free(p);
	}
	return n;
}

FRAME static void split_cudart(void **p, long n, uint64_t *between)
{
	for (long i = 0; i < n; i++) {
		int result = cudaMalloc(&p[i], options.size);
		if (result)
			die("cudaMalloc", result);
	}
	*between = now();
	for (long i = 0; i < n; i++)
		cudaFree(p[i]);
}

FRAME static void split_cuda(uint64_t *p, long n, uint64_t *between)
{
	for (long i = 0; i < n; i++) {
		int result = cu_alloc(&p[i], options.size);
		if (result)
			die("cuMemAlloc_v2", result);
	}
	*between = now();
	for (long i = 0; i < n; i++)
		cu_free(p[i]);
}

FRAME static void measure_split(struct run *r, long n)
{
	static __thread uint64_t p[CHUNK];
	if (n > CHUNK || r->splits == MAX_CHUNKS)
		return;
	uint64_t begin = now(), between;
	if (options.cuda)
		split_cuda(p, n, &between);
	else
		split_cudart((void **)p, n, &between);
	r->alloc[r->splits] = (float)(between - begin) / (float)n;
	r->free[r->splits++] = (float)(now() - between) / (float)n;
}

FRAME static long measure(struct run *r)
{
	long chunk = CHUNK;
	if (options.rate > 0 && options.rate / 100 < chunk)
		chunk = options.rate / 100 + 1;
	else if (!options.seconds && options.count < chunk * 10)
		chunk = options.count / 10 + 1;
	uint64_t begin = now();
	for (;;) {
		uint64_t t = now();
		if (options.seconds ? t - begin >= (uint64_t)(options.seconds * 1e9) : r->pairs >= options.count)
			return r->pairs;
		if (options.paths)
			pairs_paths(chunk);
		else if (options.through)
			pairs_through(chunk);
		else if (options.cuda)
			pairs_cuda(chunk);
		else
			pairs_cudart(chunk);
		r->pairs += chunk;
		r->ns += now() - t;
		r->chunk[r->chunks++ % MAX_CHUNKS] = (float)((double)(now() - t) / (double)chunk);
		if (options.tails)
			tails_measure(r->tails, chunk, site_alloc, release, options.size);
		if (options.split)
			measure_split(r, chunk);
		uint64_t due = options.rate ? begin + (uint64_t)((double)r->pairs / (double)options.rate * 1e9) : 0;
		if (now() < due) {
			struct timespec until = {(time_t)(due / 1000000000), (long)(due % 1000000000)};
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		}
	}
}

// 64 functions that call each other, so that a stack of 64 frames has 64 functions.
typedef long frame_function(struct run *, int);
static frame_function *const frames[64];
#define F(n) \
	FRAME static long frame_##n(struct run *r, int depth) { return depth > 1 ? frames[(depth - 1) & 63](r, depth - 1) + 1 : measure(r); }
#define F8(a) F(a##0) F(a##1) F(a##2) F(a##3) F(a##4) F(a##5) F(a##6) F(a##7)
F8(0) F8(1) F8(2) F8(3) F8(4) F8(5) F8(6) F8(7)
#define R8(a) frame_##a##0, frame_##a##1, frame_##a##2, frame_##a##3, frame_##a##4, frame_##a##5, frame_##a##6, frame_##a##7
static frame_function *const frames[64] = {R8(0), R8(1), R8(2), R8(3), R8(4), R8(5), R8(6), R8(7)};

FRAME static void *thread_main(void *argument)
{
	struct run *r = argument;
	if (options.cuda && cu_set(context) != 0)
		die("cuCtxSetCurrent", 0);
	frames[options.depth & 63](r, options.depth);
	return NULL;
}

static void fill(void)
{
	long n = options.live > options.sites ? options.live : options.sites;
	int level = levels(options.sites);
	for (long i = 0; i < n; i++) {
		void *p;
		int result = site_left(&p, options.live_size, (unsigned long)(options.sites ? i % options.sites : 0), level);
		if (result)
			die("live allocation", result);
		if (i >= options.live && release(p) != 0)
			die("free", 0);
	}
}

static void load_cuda(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib)
		die(dlerror(), 0);
	*(void **)&cu_alloc = dlsym(lib, "cuMemAlloc_v2");
	*(void **)&cu_free = dlsym(lib, "cuMemFree_v2");
	*(void **)&cu_set = dlsym(lib, "cuCtxSetCurrent");
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
	int result = init(0);
	if (result || (result = retain(&context, 0)) || (result = cu_set(context)))
		die("libcuda", result);
}

static void load_through(const char *file)
{
	void *lib = strcmp(file, "-") ? dlopen(file, RTLD_NOW) : dlopen(NULL, RTLD_NOW);
	if (!lib)
		die(dlerror(), 0);
	*(void **)&through_alloc = dlsym(lib, "posix_memalign");
	*(void **)&through_free = dlsym(lib, "free");
	options.through = true;
}

static void parse(int argc, char **argv)
{
	if (argc < 4 || (strcmp(argv[1], "cudart") && strcmp(argv[1], "cuda"))) {
		fprintf(stderr, "usage: bench_c cudart|cuda DEPTH COUNT [options]\n");
		exit(2);
	}
	options.cuda = !strcmp(argv[1], "cuda");
	options.depth = atoi(argv[2]);
	options.count = atol(argv[3]);
	for (int i = 4; i < argc; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "0";
		if (!strcmp(name, "--wait")) options.wait = true;
		else if (!strcmp(name, "--hold")) options.hold = true;
		else if (!strcmp(name, "--split")) options.split = true;
		else if (!strcmp(name, "--tails")) options.tails = true;
		else if (!strcmp(name, "--keep")) options.keep = true;
		else if (!strcmp(name, "--late")) options.late = true;
		else if (i++, !strcmp(name, "--threads")) options.threads = atoi(value);
		else if (!strcmp(name, "--seconds")) options.seconds = atof(value);
		else if (!strcmp(name, "--size")) options.size = strtoull(value, NULL, 0);
		else if (!strcmp(name, "--rate")) options.rate = atol(value);
		else if (!strcmp(name, "--live")) options.live = atol(value);
		else if (!strcmp(name, "--live-size")) options.live_size = strtoull(value, NULL, 0);
		else if (!strcmp(name, "--sites")) options.sites = atol(value);
		else if (!strcmp(name, "--paths")) options.paths = atol(value);
		else if (!strcmp(name, "--through")) load_through(value);
		else {
			fprintf(stderr, "bench_c: unknown option %s\n", name);
			exit(2);
		}
	}
	if (options.keep && !options.paths)
		options.paths = 1;
}

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static void report_split(struct run *r)
{
	qsort(r->alloc, (size_t)r->splits, sizeof *r->alloc, by_value);
	qsort(r->free, (size_t)r->splits, sizeof *r->free, by_value);
	if (r->splits)
		printf("ns_per_alloc %.1f\nns_per_free %.1f\n", (double)r->alloc[r->splits / 2], (double)r->free[r->splits / 2]);
}

static void report(struct run *runs)
{
	float *all = malloc(sizeof *all * MAX_CHUNKS * (size_t)options.threads);
	size_t n = 0;
	long pairs = 0;
	double per_second = 0;
	for (int i = 0; i < options.threads; i++) {
		pairs += runs[i].pairs;
		per_second += (double)runs[i].pairs / (double)(runs[i].ns ? runs[i].ns : 1) * 1e9;
		if (i)
			tails_merge(runs[0].tails, runs[i].tails);
		for (long k = 0; k < runs[i].chunks && k < MAX_CHUNKS; k++)
			all[n++] = runs[i].chunk[k];
	}
	qsort(all, n, sizeof *all, by_value);
	printf("ns_per_pair %.1f\npairs %ld\npairs_per_s %.0f\n", n ? (double)all[n / 2] : 0.0, pairs, per_second);
	if (options.tails)
		tails_print(runs[0].tails);
	if (options.split)
		report_split(&runs[0]);
	if (options.keep || options.late) {
		long extra = options.live > options.sites ? options.live : options.sites;
		printf("allocations %ld\nlive_bytes %zu\n", pairs + extra,
		       (size_t)options.live * options.live_size + (options.keep ? (size_t)pairs * options.size : 0));
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	wait_prepare();
	if (options.cuda)
		load_cuda();
	else
		cudaFree(NULL);
	if (!options.late)
		fill();
	if (options.wait) {
		printf("ready %d\n", getpid());
		fflush(stdout);
		wait_go(true);
	}
	struct run *runs = calloc((size_t)options.threads, sizeof *runs);
	for (int i = 0; i < options.threads; i++) {
		runs[i].chunk = malloc(sizeof(float) * MAX_CHUNKS);
		runs[i].alloc = malloc(sizeof(float) * MAX_CHUNKS);
		runs[i].free = malloc(sizeof(float) * MAX_CHUNKS);
		runs[i].tails = calloc(1, sizeof *runs[i].tails);
	}
	for (int i = 1; i < options.threads; i++)
		if (pthread_create(&runs[i].thread, NULL, thread_main, &runs[i]) != 0)
			die("pthread_create", i);
	thread_main(&runs[0]);
	for (int i = 1; i < options.threads; i++)
		pthread_join(runs[i].thread, NULL);
	if (options.late)
		fill();
	report(runs);
	if (options.hold) {
		puts("done");
		fflush(stdout);
		wait_go(true);
	}
	return 0;
}
