// SPDX-License-Identifier: Apache-2.0
// What calls_c --random allocates and frees.
#include "calls_random.h"
#include <stdlib.h>
#include <sys/mman.h>

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

// Half of the physical memory is for another device than the current one, and some is for the host.
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
	if (o->third == 0) // only the mapping keeps it
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

// A separate context with one of each kind; the thread then returns to its former context.
static bool allocate_context(struct worker *w, struct object *o)
{
	uint64_t ignored, array[5] = {64, 64, 0, 0x20 | 1ull << 32, 0};
	static const char *const names[] = {"cuCtxCreate_v2", "cuCtxCreate"};
	for (int i = 0; i < w->lives; i++)
		if (w->live[i].what == CONTEXT)
			return false; // one per thread
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

bool allocate(struct worker *w, struct object *o)
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
	case SHARED: share_object(w, o->size); break;
	case OPENED: return open_object(w, o);
	case ALL_KINDS: break;
	}
	return false;
}

void release(struct worker *w, struct object *o)
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
	case OPENED: close_object(w, o); break;
	case SHARED:
	case ALL_KINDS: break;
	}
}
