// SPDX-License-Identifier: Apache-2.0
// Random valid sequences of calls: each thread keeps objects of its own, frees
// them in any order from any device, and dies of any result that is not due.
#include "calls_c.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LIVE_MAX 48
#define CONTEXT_PARTS 3
#define PAGE (2ull << 20)

enum what { PLAIN, PITCHED, HOST, REGISTERED, ASYNC, ARRAY, MIPMAP, VMM, EXTERNAL, GRAPH, CONTEXT, POOL, LOW, KINDS };

struct object {
	enum what what;
	bool runtime;     // of the functions that there are two of
	uint64_t address; // or handle
	uint64_t size, second, third;
	int device;
};

struct worker {
	pthread_t id;
	unsigned long long random;
	int calls, gpus, device;
	bool free_all;
	struct object live[LIVE_MAX];
	int lives;
};

static unsigned long long random_next(struct worker *w) // xorshift64*
{
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return (w->random * 0x2545f4914f6cdd1dull) >> 16;
}

static unsigned long long below(struct worker *w, unsigned long long n) { return random_next(w) % n; }

static uint64_t random_size(struct worker *w)
{
	static const uint64_t most[] = {4096, 1 << 20, 3 << 20, 12 << 20};
	return 1 + below(w, most[below(w, 4)]);
}

// run dies unless the result is 0 or, if allowed, out of memory. It returns whether it is 0.
static bool run(const char *name, bool may_lack, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
	uint64_t argument[8] = {a, b, c, d, e};
	int result = call(function(name), argument);
	if (result && !(may_lack && result == 2)) {
		fprintf(stderr, "calls_c: random: %s: result (%d)\n", name, result);
		exit(1);
	}
	return !result;
}
#define ALLOCATE(name, a, b, c, d, e) run(name, true, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), (uint64_t)(e))
#define MUST(name, a, b, c, d, e) run(name, false, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), (uint64_t)(e))

static bool allocate_plain(struct worker *w, struct object *o)
{
	switch (below(w, 4)) {
	case 0: return ALLOCATE("cudaMalloc", &o->address, o->size, 0, 0, 0);
	case 1: return ALLOCATE("cuMemAlloc_v2", &o->address, o->size, 0, 0, 0);
	case 2: return ALLOCATE("cudaMallocManaged", &o->address, o->size, 1, 0, 0);
	default: return ALLOCATE("cuMemAllocManaged", &o->address, o->size, 1, 0, 0);
	}
}

static bool allocate_pitched(struct worker *w, struct object *o)
{
	uint64_t pitched[4], extent[3] = {1 + below(w, 5000), 1 + below(w, 60), 1 + below(w, 8)};
	switch (below(w, 3)) {
	case 0: return ALLOCATE("cudaMallocPitch", &o->address, &o->second, extent[0], extent[1], 0);
	case 1: return ALLOCATE("cuMemAllocPitch_v2", &o->address, &o->second, extent[0], extent[1], 16);
	}
	bool ok = ALLOCATE("cudaMalloc3D", pitched, extent, 0, 0, 0);
	o->address = pitched[0];
	return ok;
}

static bool allocate_host(struct worker *w, struct object *o)
{
	static const char *const names[] = {"cudaMallocHost", "cudaHostAlloc", "cuMemHostAlloc", "cuMemAllocHost_v2", "cuMemAllocHost"};
	o->size = 1 + o->size % (1 << 20);
	return ALLOCATE(names[below(w, 5)], &o->address, o->size, 0, 0, 0);
}

static bool allocate_registered(struct worker *w, struct object *o)
{
	static const char *const names[] = {"cudaHostRegister", "cuMemHostRegister_v2", "cuMemHostRegister"};
	o->size = 1 + o->size % (1 << 20);
	o->address = (uint64_t)mmap(NULL, o->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return ALLOCATE(names[below(w, 3)], o->address, o->size, 0, 0, 0);
}

static bool allocate_async(struct worker *w, struct object *o)
{
	static const char *const own[] = {"cudaMallocAsync", "cudaMallocAsync_ptsz", "cuMemAllocAsync", "cuMemAllocAsync_ptsz"};
	static const char *const from[] = {"cudaMallocFromPoolAsync", "cudaMallocFromPoolAsync_ptsz", "cuMemAllocFromPoolAsync",
					   "cuMemAllocFromPoolAsync_ptsz"};
	uint64_t pool = 0;
	for (int i = 0; i < w->lives && below(w, 2); i++)
		if (w->live[i].what == POOL)
			pool = w->live[i].address;
	if (pool)
		return ALLOCATE(from[below(w, 4)], &o->address, o->size, pool, 0, 0);
	return ALLOCATE(own[below(w, 4)], &o->address, o->size, 0, 0, 0);
}

static bool allocate_array(struct worker *w, struct object *o)
{
	uint64_t extent[3] = {1 + below(w, 512), 1 + below(w, 64), 1 + below(w, 8)}, d[5] = {extent[0], extent[1], extent[2], 0x20 | 4ull << 32, 0};
	uint64_t flat[3] = {extent[0], extent[1], 0x10 | 2ull << 32}, old[2] = {extent[0] | extent[1] << 32, 0x01 | 1ull << 32};
	uint64_t old3[3] = {extent[0] | extent[1] << 32, extent[2] | 0x02ull << 32, 2};
	int format[5] = {32, 32, 0, 0, 2};
	switch (below(w, 6)) {
	case 0: return ALLOCATE("cudaMallocArray", &o->address, format, extent[0], extent[1], 0);
	case 1: return ALLOCATE("cudaMalloc3DArray", &o->address, format, extent, 0, 0);
	case 2: return ALLOCATE("cuArrayCreate_v2", &o->address, flat, 0, 0, 0);
	case 3: return ALLOCATE("cuArrayCreate", &o->address, old, 0, 0, 0);
	case 4: return ALLOCATE("cuArray3DCreate", &o->address, old3, 0, 0, 0);
	default: return ALLOCATE("cuArray3DCreate_v2", &o->address, d, 0, 0, 0);
	}
}

static bool allocate_mipmap(struct worker *w, struct object *o)
{
	uint64_t side = 16ull << below(w, 5), extent[3] = {side, side, 0}, d[5] = {side, side, 0, 0x20 | 1ull << 32, 0};
	int format[5] = {32, 0, 0, 0, 2};
	uint64_t levels = 1 + below(w, 5);
	if (o->runtime)
		return ALLOCATE("cudaMallocMipmappedArray", &o->address, format, extent, levels, 0);
	return ALLOCATE("cuMipmappedArrayCreate", &o->address, d, levels, 0, 0);
}

// Half of the physical memory is for another device than the current one, some for the host.
static bool allocate_vmm(struct worker *w, struct object *o)
{
	bool host = below(w, 8) == 0;
	uint64_t where = host ? 3 : 1 | (uint64_t)o->device << 32, handle, properties[4] = {1 | 1ull << 32, where, 0, 0};
	uint64_t access[2] = {1 | (uint64_t)o->device << 32, 3};
	o->size = (1 + below(w, 6)) * PAGE;
	if (!ALLOCATE("cuMemCreate", &handle, o->size, properties, 0, 0))
		return false;
	MUST("cuMemAddressReserve", &o->address, o->size, 0, 0, 0);
	MUST("cuMemMap", o->address, o->size, 0, handle, 0);
	MUST("cuMemSetAccess", o->address, o->size, access, 1, 0);
	o->second = handle;
	o->third = below(w, 3);
	if (o->third == 0) // the mapping alone keeps it
		MUST("cuMemRelease", handle, 0, 0, 0, 0);
	return true;
}

static void free_vmm(struct object *o)
{
	uint64_t handle;
	if (o->third == 1) { // as NCCL does
		MUST("cuMemRetainAllocationHandle", &handle, o->address, 0, 0, 0);
		MUST("cuMemRelease", o->second, 0, 0, 0, 0);
		MUST("cuMemUnmap", o->address, o->size, 0, 0, 0);
		MUST("cuMemRelease", handle, 0, 0, 0, 0);
	} else {
		MUST("cuMemUnmap", o->address, o->size, 0, 0, 0);
		if (o->third == 2)
			MUST("cuMemRelease", o->second, 0, 0, 0, 0);
	}
	MUST("cuMemAddressFree", o->address, o->size, 0, 0, 0);
}

static bool allocate_external(struct worker *w, struct object *o)
{
	uint64_t d[13] = {1, 0, 0, o->size}, buffer[11] = {0, o->size};
	if (!ALLOCATE(o->runtime ? "cudaImportExternalMemory" : "cuImportExternalMemory", &o->address, d, 0, 0, 0))
		return false;
	if ((o->third = below(w, 2)))
		MUST(o->runtime ? "cudaExternalMemoryGetMappedBuffer" : "cuExternalMemoryGetMappedBuffer", &o->second, o->address, buffer, 0, 0);
	return true;
}

static bool allocate_graph(struct worker *w, struct object *o)
{
	uint64_t node, parameters[15] = {1, 1 | (uint64_t)o->device << 32};
	parameters[13] = o->size;
	MUST(o->runtime ? "cudaGraphCreate" : "cuGraphCreate", &o->second, 0, 0, 0, 0);
	MUST(o->runtime ? "cudaGraphAddMemAllocNode" : "cuGraphAddMemAllocNode", &node, o->second, 0, 0, parameters);
	o->address = parameters[14];
	MUST(o->runtime ? "cudaGraphInstantiate" : "cuGraphInstantiateWithFlags", &o->third, o->second, 0, 0, 0);
	if (below(w, 2) && !ALLOCATE(o->runtime ? "cudaGraphLaunch" : "cuGraphLaunch", o->third, 0, 0, 0, 0))
		fprintf(stderr, "calls_c: random: no memory to launch with\n");
	return true;
}

static void free_graph(struct object *o)
{
	uint64_t node;
	MUST(o->runtime ? "cudaGraphAddMemFreeNode" : "cuGraphAddMemFreeNode", &node, o->second, 0, 0, o->address);
	MUST(o->runtime ? "cudaGraphExecDestroy" : "cuGraphExecDestroy", o->third, 0, 0, 0, 0);
	MUST(o->runtime ? "cudaGraphDestroy" : "cuGraphDestroy", o->second, 0, 0, 0, 0);
	MUST(o->runtime ? "cudaDeviceGraphMemTrim" : "cuDeviceGraphMemTrim", o->device, 0, 0, 0, 0);
}

// A context of its own with something of everything in it; the thread then goes on in its former one.
static bool allocate_context(struct worker *w, struct object *o)
{
	uint64_t ignored, array[5] = {64, 64, 0, 0x20 | 1ull << 32, 0};
	static const char *const names[] = {"cuCtxCreate_v2", "cuCtxCreate"};
	for (int i = 0; i < w->lives; i++)
		if (w->live[i].what == CONTEXT)
			return false; // one a thread
	if (!(below(w, 2) ? ALLOCATE(names[below(w, 2)], &o->address, 0, o->device, 0, 0)
			  : ALLOCATE("cuCtxCreate_v3", &o->address, 0, 0, 0, o->device)))
		return false;
	for (int i = 0; i < CONTEXT_PARTS; i++) {
		ALLOCATE("cuMemAlloc_v2", &ignored, random_size(w), 0, 0, 0);
		ALLOCATE("cuMemAllocAsync", &ignored, random_size(w), 0, 0, 0);
		ALLOCATE("cuMemHostAlloc", &ignored, 1 + below(w, 9999), 0, 0, 0);
	}
	ALLOCATE("cuArray3DCreate_v2", &ignored, array, 0, 0, 0);
	MUST("cuCtxPopCurrent_v2", &ignored, 0, 0, 0, 0);
	return true;
}

static bool allocate_pool(struct worker *w, struct object *o)
{
	uint64_t properties[11] = {1, 1 | (uint64_t)o->device << 32}, threshold = below(w, 2) * (64 << 20);
	if (!ALLOCATE(o->runtime ? "cudaMemPoolCreate" : "cuMemPoolCreate", &o->address, properties, 0, 0, 0))
		return false;
	return MUST(o->runtime ? "cudaMemPoolSetAttribute" : "cuMemPoolSetAttribute", o->address, 4, &threshold, 0, 0);
}

static bool allocate_low(struct worker *w, struct object *o)
{
	uint64_t address = 0, pitch = 0;
	bool ok = o->runtime ? ALLOCATE("cuMemAlloc", &address, o->size, 0, 0, 0)
			     : ALLOCATE("cuMemAllocPitch", &address, &pitch, 1 + below(w, 4000), 1 + below(w, 500), 4);
	o->address = address;
	return ok;
}

static bool allocate(struct worker *w, struct object *o)
{
	switch (o->what) {
	case PLAIN: return allocate_plain(w, o);
	case PITCHED: return allocate_pitched(w, o);
	case HOST: return allocate_host(w, o);
	case REGISTERED: return allocate_registered(w, o);
	case ASYNC: return allocate_async(w, o);
	case ARRAY: return allocate_array(w, o);
	case MIPMAP: return allocate_mipmap(w, o);
	case VMM: return allocate_vmm(w, o);
	case EXTERNAL: return allocate_external(w, o);
	case GRAPH: return allocate_graph(w, o);
	case CONTEXT: return allocate_context(w, o);
	case POOL: return allocate_pool(w, o);
	case LOW: return allocate_low(w, o);
	case KINDS: break;
	}
	return false;
}

static void release(struct worker *w, struct object *o)
{
	static const char *const async[] = {"cudaFreeAsync", "cudaFreeAsync_ptsz", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cudaFree"};
	switch (o->what) {
	case PLAIN:
	case PITCHED: MUST(o->runtime ? "cudaFree" : "cuMemFree_v2", o->address, 0, 0, 0, 0); break;
	case HOST: MUST(o->runtime ? "cudaFreeHost" : "cuMemFreeHost", o->address, 0, 0, 0, 0); break;
	case REGISTERED:
		MUST(o->runtime ? "cudaHostUnregister" : "cuMemHostUnregister", o->address, 0, 0, 0, 0);
		munmap((void *)o->address, o->size);
		break;
	case ASYNC: MUST(async[below(w, 5)], o->address, 0, 0, 0, 0); break;
	case ARRAY: MUST(o->runtime ? "cudaFreeArray" : "cuArrayDestroy", o->address, 0, 0, 0, 0); break;
	case MIPMAP: MUST(o->runtime ? "cudaFreeMipmappedArray" : "cuMipmappedArrayDestroy", o->address, 0, 0, 0, 0); break;
	case VMM: free_vmm(o); break;
	case EXTERNAL:
		if (o->third)
			MUST("cudaFree", o->second, 0, 0, 0, 0);
		MUST(o->runtime ? "cudaDestroyExternalMemory" : "cuDestroyExternalMemory", o->address, 0, 0, 0, 0);
		break;
	case GRAPH: free_graph(o); break;
	case CONTEXT: MUST(o->runtime ? "cuCtxDestroy" : "cuCtxDestroy_v2", o->address, 0, 0, 0, 0); break;
	case POOL: MUST(o->runtime ? "cudaMemPoolDestroy" : "cuMemPoolDestroy", o->address, 0, 0, 0, 0); break;
	case LOW: MUST("cuMemFree", o->address, 0, 0, 0, 0); break;
	case KINDS: break;
	}
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

static void *run_thread(void *argument)
{
	struct worker *w = argument;
	MUST("cudaSetDevice", w->device, 0, 0, 0, 0);
	for (int i = 0; i < w->calls; i++) {
		if (below(w, 12) == 0) {
			other_call(w);
		} else if (w->lives == LIVE_MAX || (w->lives && below(w, 100) < 48)) {
			free_one(w, (int)below(w, (unsigned long long)w->lives));
		} else {
			struct object o = {.what = (enum what)below(w, KINDS), .runtime = below(w, 2), .size = random_size(w),
					   .device = (int)below(w, (unsigned long long)w->gpus)};
			if (allocate(w, &o))
				w->live[w->lives++] = o;
		}
	}
	while (w->free_all && w->lives)
		free_one(w, w->lives - 1);
	return NULL;
}

bool run_random(int argc, char **argv)
{
	int threads = 1, gpus = 1;
	bool wait = false, free_all = false;
	if (argc < 4) {
		fprintf(stderr, "calls_c: --random SEED CALLS [--threads N] [--gpus N] [--free] [--wait]\n");
		exit(1);
	}
	for (int i = 4; i < argc; i++) {
		wait |= !strcmp(argv[i], "--wait");
		free_all |= !strcmp(argv[i], "--free");
		if (!strcmp(argv[i], "--threads") && i + 1 < argc)
			threads = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--gpus") && i + 1 < argc)
			gpus = atoi(argv[++i]);
	}
	struct worker *w = calloc((size_t)threads, sizeof *w);
	for (int i = 0; i < threads; i++) {
		w[i] = (struct worker){.random = (strtoull(argv[2], NULL, 0) + 1) * 0x9e3779b97f4a7c15ull + (unsigned long long)i * 0xbf58476d1ce4e5b9ull,
				       .calls = atoi(argv[3]) / threads, .gpus = gpus, .device = i % gpus, .free_all = free_all};
		if (pthread_create(&w[i].id, NULL, run_thread, &w[i]) != 0)
			exit(1);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(w[i].id, NULL);
	free(w);
	return wait;
}
