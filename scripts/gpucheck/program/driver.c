// SPDX-License-Identifier: Apache-2.0
// Uses CUDA's driver API as gpu_check.py tells it: one command per line of stdin, answered with one
// line of JSON. It takes the libcuda.so.1 that the loader finds, and the first GPU that it shows.
//
//   init                      the driver's version, the GPU's memory, and all UUIDs in CUDA's order
//   alloc BYTES [COUNT]       cuMemAlloc_v2, COUNT times; free frees the latest COUNT
//   managed | pinned | async BYTES, and freemanaged, freepinned, freeasync, trim
//   create BYTES, map, release, unmap   physical memory, as PyTorch's expandable segments use it
//   node BYTES, launch, endgraph        memory of an alloc node of a graph
//   system BYTES NODE         memory of malloc's kind, bound to a NUMA node (-1: any), and touched
//   gpu N                     makes GPU N current, with its primary context
//   share, and open HANDLE    the latest allocation for another process, and one of another process
//   pairs COUNT               nanoseconds per pair of cuMemAlloc_v2 and cuMemFree_v2, of 1 MiB
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long address;
static void *cuda, *context, *pool, *graph, *exec, *node, *pinned, *plain;
static size_t plain_size;
static address list[1 << 16], managed, queued, base, handle, noded, opened;
static size_t mapped;
static int count;
static char answer[4096];

// call looks up a function of the driver; without it, result is -1.
#define CALL(name, type, ...) ({ int (*f) type = dlsym(cuda, name); f ? f(__VA_ARGS__) : -1; })

static int init(void)
{
	unsigned char id[16];
	int version = 0, device = 0, devices = 0, result;
	size_t total = 0;
	if (!(cuda = dlopen("libcuda.so.1", RTLD_NOW)))
		return -1;
	if ((result = CALL("cuInit", (unsigned), 0)) || (result = CALL("cuDriverGetVersion", (int *), &version)) ||
		(result = CALL("cuDeviceGet", (int *, int), &device, 0)) || (result = CALL("cuDeviceGetCount", (int *), &devices)) ||
		(result = CALL("cuDeviceTotalMem_v2", (size_t *, int), &total, device)) ||
		(result = CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device)) || (result = CALL("cuCtxSetCurrent", (void *), context)))
		return result;
	CALL("cuDeviceGetDefaultMemPool", (void **, int), &pool, device);
	int n = sprintf(answer, ", \"version\": %d, \"memory\": %zu, \"uuids\": [", version, total);
	for (int k = 0; k < devices && k < 64; k++) {
		if (CALL("cuDeviceGet", (int *, int), &device, k) ||
			(CALL("cuDeviceGetUuid_v2", (unsigned char *, int), id, device) && CALL("cuDeviceGetUuid", (unsigned char *, int), id, device)))
			break;
		n += sprintf(answer + n, "%s\"GPU-", k ? ", " : "");
		for (int i = 0; i < 16; i++)
			n += sprintf(answer + n, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
		n += sprintf(answer + n, "\"");
	}
	strcpy(answer + n, "]");
	return 0;
}

// The stack of each of these allocations must be main, gpucheck_outer, gpucheck_inner,
// cuMemAlloc_v2.
__attribute__((noipa)) int gpucheck_inner(size_t bytes)
{
	int result = CALL("cuMemAlloc_v2", (address *, size_t), &list[count], bytes);
	if (!result)
		count++;
	return result;
}

__attribute__((noipa)) int gpucheck_outer(size_t bytes, long times)
{
	int result = 0;
	for (long i = 0; i < times && count < 1 << 16 && !result; i++)
		result = gpucheck_inner(bytes);
	return result;
}

static int release_latest(long times)
{
	int result = 0;
	while (times-- > 0 && count > 0 && !result)
		result = CALL("cuMemFree_v2", (address), list[--count]);
	return result;
}

static int pairs(long times)
{
	struct timespec begin, end;
	address at;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (long i = 0; i < times; i++) {
		int result = CALL("cuMemAlloc_v2", (address *, size_t), &at, 1 << 20);
		if (result || (result = CALL("cuMemFree_v2", (address), at)))
			return result;
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	sprintf(answer, ", \"ns\": %.0f", ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / (times ? times : 1));
	return 0;
}

static int create(size_t bytes)
{
	struct { int type, handles, where, device; void *windows; char flags[8]; } properties = {1, 0, 1, 0, NULL, {0}};
	return CALL("cuMemCreate", (address *, size_t, void *, address), &handle, mapped = bytes, &properties, 0);
}

static int map(void)
{
	struct { int where, device, access; } access = {1, 0, 3};
	int result = CALL("cuMemAddressReserve", (address *, size_t, size_t, address, address), &base, mapped, 0, 0, 0);
	if (!result)
		result = CALL("cuMemMap", (address, size_t, size_t, address, address), base, mapped, 0, handle, 0);
	return result ? result : CALL("cuMemSetAccess", (address, size_t, void *, size_t), base, mapped, &access, 1);
}

static int unmap(void)
{
	int result = CALL("cuMemUnmap", (address, size_t), base, mapped);
	return result ? result : CALL("cuMemAddressFree", (address, size_t), base, mapped);
}

static int add_node(size_t bytes)
{
	struct { struct { int type, handles, where, device; char rest[72]; } pool; void *access; size_t accesses, bytes; address at; } parameters;
	memset(&parameters, 0, sizeof parameters);
	parameters.pool.type = parameters.pool.where = 1;
	parameters.bytes = bytes;
	int result = CALL("cuGraphCreate", (void **, unsigned), &graph, 0);
	if (!result)
		result = CALL("cuGraphAddMemAllocNode", (void **, void *, void *, size_t, void *), &node, graph, NULL, 0, &parameters);
	noded = parameters.at;
	return result;
}

static int launch(void)
{
	int result = CALL("cuGraphInstantiateWithFlags", (void **, void *, address), &exec, graph, 0);
	if (!result)
		result = CALL("cuGraphLaunch", (void *, void *), exec, NULL);
	return result ? result : CALL("cuCtxSynchronize", (void), );
}

static int end_graph(void)
{
	int result = CALL("cuMemFree_v2", (address), noded);
	CALL("cuGraphExecDestroy", (void *), exec);
	CALL("cuGraphDestroy", (void *), graph);
	CALL("cuDeviceGraphMemTrim", (int), 0);
	return result;
}

static int system_memory(size_t bytes, long on)
{
	unsigned long nodes[16] = {0};
	plain = mmap(NULL, plain_size = bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (plain == MAP_FAILED)
		return -1;
	if (on >= 0 && on < 1024) {
		nodes[on / 64] = 1ul << on % 64;
		if (syscall(SYS_mbind, plain, bytes, 2 /* MPOL_BIND */, nodes, 1025ul, 0))
			return -1;
	}
	memset(plain, 1, bytes);
	return 0;
}

struct ipc { unsigned char bytes[64]; }; // CUipcMemHandle

static int share(void)
{
	struct ipc h;
	int result = count ? CALL("cuIpcGetMemHandle", (struct ipc *, address), &h, list[count - 1]) : -1;
	if (result)
		return result;
	int n = sprintf(answer, ", \"handle\": \"");
	for (int i = 0; i < 64; i++)
		n += sprintf(answer + n, "%02x", h.bytes[i]);
	strcpy(answer + n, "\"");
	return 0;
}

static int open_shared(const char *line)
{
	struct ipc h;
	for (int i = 0; i < 64; i++)
		if (sscanf(line + 5 + 2 * i, "%2hhx", &h.bytes[i]) != 1)
			return -1;
	return CALL("cuIpcOpenMemHandle_v2", (address *, struct ipc, unsigned), &opened, h, 1);
}

static int run(const char *name, size_t bytes, long number)
{
	int result;
#define IS(word) (!strcmp(name, word))
	if (IS("init")) return init();
	if (!cuda) return -1;
	if (IS("alloc")) return gpucheck_outer(bytes, number ? number : 1);
	if (IS("gpu")) {
		result = CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, (int)bytes);
		return result ? result : CALL("cuCtxSetCurrent", (void *), context);
	}
	if (IS("free")) return release_latest(bytes ? (long)bytes : 1);
	if (IS("managed")) {
		if (!(result = CALL("cuMemAllocManaged", (address *, size_t, unsigned), &managed, bytes, 1)))
			memset((void *)(uintptr_t)managed, 1, bytes);
		return result;
	}
	if (IS("freemanaged")) return CALL("cuMemFree_v2", (address), managed);
	if (IS("pinned")) return CALL("cuMemHostAlloc", (void **, size_t, unsigned), &pinned, bytes, 0);
	if (IS("freepinned")) return CALL("cuMemFreeHost", (void *), pinned);
	if (IS("async")) {
		result = CALL("cuMemAllocAsync", (address *, size_t, void *), &queued, bytes, NULL);
		CALL("cuCtxSynchronize", (void), );
		return result;
	}
	if (IS("freeasync")) {
		result = CALL("cuMemFreeAsync", (address, void *), queued, NULL);
		CALL("cuCtxSynchronize", (void), );
		return result;
	}
	if (IS("trim")) return CALL("cuMemPoolTrimTo", (void *, size_t), pool, 0);
	if (IS("create")) return create(bytes);
	if (IS("map")) return map();
	if (IS("release")) return CALL("cuMemRelease", (address), handle);
	if (IS("unmap")) return unmap();
	if (IS("node")) return add_node(bytes);
	if (IS("launch")) return launch();
	if (IS("endgraph")) return end_graph();
	if (IS("system")) return system_memory(bytes, number);
	if (IS("freesystem")) return munmap(plain, plain_size);
	if (IS("pairs")) return pairs((long)bytes);
	if (IS("share")) return share();
	if (IS("close")) return CALL("cuIpcCloseMemHandle", (address), opened);
	return -1;
}

int main(void)
{
	char line[256], name[32];
	while (fgets(line, sizeof line, stdin)) {
		unsigned long long bytes = 0;
		long number = 0;
		answer[0] = 0;
		if (sscanf(line, "%31s %llu %ld", name, &bytes, &number) < 1)
			continue;
		int result = strncmp(line, "open ", 5) ? run(name, bytes, number) : cuda ? open_shared(line) : -1;
		printf("{\"result\": %d%s}\n", result, answer);
		fflush(stdout);
	}
	return 0;
}
