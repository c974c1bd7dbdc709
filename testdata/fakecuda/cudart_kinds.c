// SPDX-License-Identifier: Apache-2.0
// The fake CUDA runtime beyond plain allocations.
#include "runtime.h"

struct extent { // cudaExtent
	size_t width, height, depth;
};
struct pitched { // cudaPitchedPtr
	void *pointer;
	size_t pitch, width, height;
};
struct channels { // cudaChannelFormatDesc
	int bits[4], kind;
};
struct runtime_external { // cudaExternalMemoryHandleDesc
	int type;
	void *handle[2];
	unsigned long long size;
	unsigned flags;
};
struct runtime_buffer { // cudaExternalMemoryBufferDesc
	unsigned long long offset, size;
	unsigned flags;
};
struct runtime_mipmap { // cudaExternalMemoryMipmappedArrayDesc
	unsigned long long offset;
	struct channels format;
	struct extent extent;
	unsigned flags, levels;
};
_Static_assert(sizeof(struct extent) == 24 && sizeof(struct pitched) == 32 && sizeof(struct channels) == 20, "by value");
_Static_assert(offsetof(struct runtime_external, size) == 24 && offsetof(struct runtime_buffer, size) == 8, "by the headers");

// CALL is the body of a function that only calls the driver function of the same name.
#define CALL(function, ...) \
	SAVE_REGISTERS(); \
	int result = cudart_ready(); \
	return cudart_record(result == SUCCESS ? cudart_driver.function(__VA_ARGS__) : result)

API int cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height)
{
	CALL(cuMemAllocPitch_v2, (uint64_t *)p, pitch, width, height, 4);
}

API int cudaMalloc3D(struct pitched *p, struct extent e)
{
	SAVE_REGISTERS();
	uint64_t address;
	int result = cudart_ready();
	if (result == SUCCESS && !p)
		result = INVALID_VALUE;
	if (result == SUCCESS)
		result = cudart_driver.cuMemAllocPitch_v2(&address, &p->pitch, e.width, e.height * e.depth, 4);
	if (result == SUCCESS) {
		p->pointer = (void *)address;
		p->width = e.width;
		p->height = e.height;
	}
	return cudart_record(result);
}

static int describe(struct array3d *out, const struct channels *c, struct extent e, unsigned flags)
{
	static const unsigned formats[3][3] = {{0x08, 0x09, 0x0a}, {0x01, 0x02, 0x03}, {0, 0x10, 0x20}};
	if (!c || c->kind < 0 || c->kind > 2)
		return INVALID_VALUE;
	unsigned channels = 0, column = c->bits[0] == 8 ? 0 : c->bits[0] == 16 ? 1 : 2;
	while (channels < 4 && c->bits[channels])
		channels++;
	*out = (struct array3d){e.width, e.height, e.depth, formats[c->kind][column], channels, flags};
	return SUCCESS;
}

static int create_array(void **out, const struct channels *c, struct extent e, unsigned flags, unsigned levels)
{
	struct array3d d;
	int result = cudart_ready();
	if (result == SUCCESS)
		result = describe(&d, c, e, flags);
	if (result != SUCCESS)
		return result;
	return levels ? cudart_driver.cuMipmappedArrayCreate(out, &d, levels) : cudart_driver.cuArray3DCreate_v2(out, &d);
}

API int cudaMallocArray(void **out, const struct channels *c, size_t width, size_t height, unsigned flags)
{
	SAVE_REGISTERS();
	return cudart_record(create_array(out, c, (struct extent){width, height, 0}, flags, 0));
}

API int cudaMalloc3DArray(void **out, const struct channels *c, struct extent e, unsigned flags)
{
	SAVE_REGISTERS();
	return cudart_record(create_array(out, c, e, flags, 0));
}

API int cudaMallocMipmappedArray(void **out, const struct channels *c, struct extent e, unsigned levels, unsigned flags)
{
	SAVE_REGISTERS();
	return cudart_record(levels ? create_array(out, c, e, flags, levels) : INVALID_VALUE);
}

API int cudaFreeArray(void *array) { CALL(cuArrayDestroy, array); }

API int cudaFreeMipmappedArray(void *array) { CALL(cuMipmappedArrayDestroy, array); }

API int cudaHostRegister(void *p, size_t size, unsigned flags) { CALL(cuMemHostRegister_v2, p, size, flags); }

API int cudaHostUnregister(void *p) { CALL(cuMemHostUnregister, p); }

API int cudaMallocAsync(void **p, size_t size, void *stream) { CALL(cuMemAllocAsync, (uint64_t *)p, size, stream); }

API int cudaMallocAsync_ptsz(void **p, size_t size, void *stream) { CALL(cuMemAllocAsync_ptsz, (uint64_t *)p, size, stream); }

API int cudaMallocFromPoolAsync(void **p, size_t size, void *pool, void *stream)
{
	CALL(cuMemAllocFromPoolAsync, (uint64_t *)p, size, pool, stream);
}

API int cudaMallocFromPoolAsync_ptsz(void **p, size_t size, void *pool, void *stream)
{
	CALL(cuMemAllocFromPoolAsync_ptsz, (uint64_t *)p, size, pool, stream);
}

API int cudaFreeAsync(void *p, void *stream) { CALL(cuMemFreeAsync, (uint64_t)p, stream); }

API int cudaFreeAsync_ptsz(void *p, void *stream) { CALL(cuMemFreeAsync_ptsz, (uint64_t)p, stream); }

API int cudaStreamSynchronize(void *stream) { CALL(cuStreamSynchronize, stream); }

API int cudaMemPoolCreate(void **pool, const struct pool_properties *p) { CALL(cuMemPoolCreate, pool, p); }

API int cudaMemPoolDestroy(void *pool) { CALL(cuMemPoolDestroy, pool); }

API int cudaMemPoolTrimTo(void *pool, size_t keep) { CALL(cuMemPoolTrimTo, pool, keep); }

API int cudaMemPoolSetAttribute(void *pool, int attribute, void *value) { CALL(cuMemPoolSetAttribute, pool, attribute, value); }

API int cudaMemPoolGetAttribute(void *pool, int attribute, void *value) { CALL(cuMemPoolGetAttribute, pool, attribute, value); }

API int cudaMemPoolExportPointer(struct handle *data, void *p) { CALL(cuMemPoolExportPointer, data, (uint64_t)p); }

API int cudaMemPoolImportPointer(void **p, void *pool, const struct handle *data)
{
	CALL(cuMemPoolImportPointer, (uint64_t *)p, pool, data);
}

API int cudaDeviceGetDefaultMemPool(void **pool, int device) { CALL(cuDeviceGetDefaultMemPool, pool, device); }

API int cudaDeviceGetMemPool(void **pool, int device) { CALL(cuDeviceGetMemPool, pool, device); }

API int cudaDeviceSetMemPool(int device, void *pool) { CALL(cuDeviceSetMemPool, device, pool); }

API int cudaIpcGetMemHandle(struct handle *h, void *p) { CALL(cuIpcGetMemHandle, h, (uint64_t)p); }

API int cudaIpcOpenMemHandle(void **p, struct handle h, unsigned flags) { CALL(cuIpcOpenMemHandle_v2, (uint64_t *)p, h, flags); }

API int cudaIpcCloseMemHandle(void *p) { CALL(cuIpcCloseMemHandle, (uint64_t)p); }

API int cudaImportExternalMemory(void **out, const struct runtime_external *d)
{
	SAVE_REGISTERS();
	struct external driver = {.type = d ? d->type : 0, .size = d ? d->size : 0};
	int result = cudart_ready();
	return cudart_record(result == SUCCESS ? cudart_driver.cuImportExternalMemory(out, &driver) : result);
}

API int cudaExternalMemoryGetMappedBuffer(void **p, void *external, const struct runtime_buffer *d)
{
	SAVE_REGISTERS();
	struct buffer driver = {.offset = d ? d->offset : 0, .size = d ? d->size : 0};
	int result = cudart_ready();
	return cudart_record(result == SUCCESS ? cudart_driver.cuExternalMemoryGetMappedBuffer((uint64_t *)p, external, &driver) : result);
}

API int cudaExternalMemoryGetMappedMipmappedArray(void **out, void *external, const struct runtime_mipmap *d)
{
	SAVE_REGISTERS();
	struct mapped_mipmap driver = {.levels = d ? d->levels : 0};
	int result = cudart_ready();
	if (result == SUCCESS)
		result = d ? describe(&driver.array, &d->format, d->extent, 0) : INVALID_VALUE;
	return cudart_record(result == SUCCESS ? cudart_driver.cuExternalMemoryGetMappedMipmappedArray(out, external, &driver) : result);
}

API int cudaDestroyExternalMemory(void *external) { CALL(cuDestroyExternalMemory, external); }

API int cudaGraphCreate(void **graph, unsigned flags) { CALL(cuGraphCreate, graph, flags); }

API int cudaGraphDestroy(void *graph) { CALL(cuGraphDestroy, graph); }

API int cudaGraphAddMemAllocNode(void **node, void *graph, void *const *needs, size_t count, struct node_parameters *p)
{
	CALL(cuGraphAddMemAllocNode, node, graph, needs, count, p);
}

API int cudaGraphAddMemFreeNode(void **node, void *graph, void *const *needs, size_t count, void *p)
{
	CALL(cuGraphAddMemFreeNode, node, graph, needs, count, (uint64_t)p);
}

API int cudaGraphInstantiate(void **exec, void *graph, unsigned long long flags)
{
	CALL(cuGraphInstantiateWithFlags, exec, graph, flags);
}

API int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
	CALL(cuGraphInstantiateWithFlags, exec, graph, flags);
}

API int cudaGraphInstantiateWithParams(void **exec, void *graph, void *p) { CALL(cuGraphInstantiateWithParams, exec, graph, p); }

API int cudaGraphInstantiateWithParams_ptsz(void **exec, void *graph, void *p) { CALL(cuGraphInstantiateWithParams_ptsz, exec, graph, p); }

API int cudaGraphAddNode_v2(void **node, void *graph, void *const *needs, const void *edges, size_t count, struct any_node *p)
{
	CALL(cuGraphAddNode_v2, node, graph, needs, edges, count, p);
}

#ifdef CUDART_13 // its function takes the arguments of the former _v2
API int cudaGraphAddNode(void **node, void *graph, void *const *needs, const void *edges, size_t count, struct any_node *p)
{
	CALL(cuGraphAddNode_v2, node, graph, needs, edges, count, p);
}
#else
API int cudaGraphAddNode(void **node, void *graph, void *const *needs, size_t count, struct any_node *p)
{
	CALL(cuGraphAddNode, node, graph, needs, count, p);
}
#endif

API int cudaStreamBeginCapture(void *stream, int mode) { CALL(cuStreamBeginCapture_v2, stream, mode); }

API int cudaStreamBeginCapture_ptsz(void *stream, int mode) { CALL(cuStreamBeginCapture_v2_ptsz, stream, mode); }

API int cudaStreamBeginCaptureToGraph(void *stream, void *graph, void *needs, void *edges, size_t count, int mode)
{
	CALL(cuStreamBeginCaptureToGraph, stream, graph, needs, edges, count, mode);
}

API int cudaStreamBeginCaptureToGraph_ptsz(void *stream, void *graph, void *needs, void *edges, size_t count, int mode)
{
	CALL(cuStreamBeginCaptureToGraph_ptsz, stream, graph, needs, edges, count, mode);
}

API int cudaStreamEndCapture(void *stream, void **graph) { CALL(cuStreamEndCapture, stream, graph); }

API int cudaStreamEndCapture_ptsz(void *stream, void **graph) { CALL(cuStreamEndCapture_ptsz, stream, graph); }

API int cudaMemGetDefaultMemPool(void **pool, const struct location *l, int type) { CALL(cuMemGetDefaultMemPool, pool, l, type); }

API int cudaMemGetMemPool(void **pool, const struct location *l, int type) { CALL(cuMemGetMemPool, pool, l, type); }

API int cudaMemSetMemPool(const struct location *l, int type, void *pool) { CALL(cuMemSetMemPool, l, type, pool); }

API int cudaGraphLaunch(void *exec, void *stream) { CALL(cuGraphLaunch, exec, stream); }

API int cudaGraphExecDestroy(void *exec) { CALL(cuGraphExecDestroy, exec); }

API int cudaDeviceGraphMemTrim(int device) { CALL(cuDeviceGraphMemTrim, device); }

// The device gets a context but does not become current.
API int cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
	SAVE_REGISTERS();
	(void)device_flags, (void)flags;
	struct context *c;
	int result = cudart_context(device, &c);
	if (result == SUCCESS)
		result = cudart_driver.cuCtxPushCurrent_v2(c);
	if (result == SUCCESS)
		result = cudart_driver.cuCtxPopCurrent_v2(&c);
	return cudart_record(result);
}
