// SPDX-License-Identifier: Apache-2.0
// The driver functions that the runtime calls: PRIVATE(symbol, name, version, arguments). Through
// cuGetExportTable, libcuda offers the same functions without the exported stubs.
#pragma once
#include "structures.h"

struct context;

#define PRIVATE_FUNCTIONS(PRIVATE) \
	PRIVATE(cuInit, cuInit, 2000, (unsigned)) \
	PRIVATE(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *)) \
	PRIVATE(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, (int *, int, int)) \
	PRIVATE(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, (size_t *, int)) \
	PRIVATE(cuDeviceGetUuid, cuDeviceGetUuid, 9020, (unsigned char *, int)) \
	PRIVATE(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *, int, uint64_t)) \
	PRIVATE(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (struct context *)) \
	PRIVATE(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (struct context **)) \
	PRIVATE(cuCtxGetDevice, cuCtxGetDevice, 2000, (int *)) \
	PRIVATE(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (struct context **, int)) \
	PRIVATE(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, (int)) \
	PRIVATE(cuMemAlloc_v2, cuMemAlloc, 3020, (uint64_t *, size_t)) \
	PRIVATE(cuMemFree_v2, cuMemFree, 3020, (uint64_t)) \
	PRIVATE(cuMemAllocManaged, cuMemAllocManaged, 6000, (uint64_t *, size_t, unsigned)) \
	PRIVATE(cuMemHostAlloc, cuMemHostAlloc, 2020, (void **, size_t, unsigned)) \
	PRIVATE(cuMemFreeHost, cuMemFreeHost, 2000, (void *)) \
	PRIVATE(cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t *, size_t *)) \
	PRIVATE(cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000, (struct context *)) \
	PRIVATE(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, (struct context **)) \
	PRIVATE(cuCtxSynchronize, cuCtxSynchronize, 2000, (void)) \
	PRIVATE(cuStreamSynchronize, cuStreamSynchronize, 2000, (void *)) \
	PRIVATE(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, (uint64_t *, size_t *, size_t, size_t, unsigned)) \
	PRIVATE(cuMemHostRegister_v2, cuMemHostRegister, 6050, (void *, size_t, unsigned)) \
	PRIVATE(cuMemHostUnregister, cuMemHostUnregister, 4000, (void *)) \
	PRIVATE(cuMemAllocAsync, cuMemAllocAsync, 11020, (uint64_t *, size_t, void *)) \
	PRIVATE(cuMemAllocAsync_ptsz, cuMemAllocAsync_ptsz, 11020, (uint64_t *, size_t, void *)) \
	PRIVATE(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, (uint64_t *, size_t, void *, void *)) \
	PRIVATE(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync_ptsz, 11020, (uint64_t *, size_t, void *, void *)) \
	PRIVATE(cuMemFreeAsync, cuMemFreeAsync, 11020, (uint64_t, void *)) \
	PRIVATE(cuMemFreeAsync_ptsz, cuMemFreeAsync_ptsz, 11020, (uint64_t, void *)) \
	PRIVATE(cuMemPoolCreate, cuMemPoolCreate, 11020, (void **, const struct pool_properties *)) \
	PRIVATE(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (void *)) \
	PRIVATE(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (void *, size_t)) \
	PRIVATE(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, (void *, int, void *)) \
	PRIVATE(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, (void *, int, void *)) \
	PRIVATE(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, (struct handle *, uint64_t)) \
	PRIVATE(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020, (uint64_t *, void *, const struct handle *)) \
	PRIVATE(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, (void **, int)) \
	PRIVATE(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, (void **, int)) \
	PRIVATE(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, (int, void *)) \
	PRIVATE(cuArray3DCreate_v2, cuArray3DCreate, 3020, (void **, const struct array3d *)) \
	PRIVATE(cuArrayDestroy, cuArrayDestroy, 2000, (void *)) \
	PRIVATE(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, (void **, const struct array3d *, unsigned)) \
	PRIVATE(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (void *)) \
	PRIVATE(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (struct handle *, uint64_t)) \
	PRIVATE(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, (uint64_t *, struct handle, unsigned)) \
	PRIVATE(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (uint64_t)) \
	PRIVATE(cuImportExternalMemory, cuImportExternalMemory, 10000, (void **, const struct external *)) \
	PRIVATE(cuExternalMemoryGetMappedMipmappedArray, cuExternalMemoryGetMappedMipmappedArray, 10000, (void **, void *, const struct mapped_mipmap *)) \
	PRIVATE(cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000, (uint64_t *, void *, const struct buffer *)) \
	PRIVATE(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (void *)) \
	PRIVATE(cuGraphCreate, cuGraphCreate, 10000, (void **, unsigned)) \
	PRIVATE(cuGraphDestroy, cuGraphDestroy, 10000, (void *)) \
	PRIVATE(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, (void **, void *, void *const *, size_t, struct node_parameters *)) \
	PRIVATE(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040, (void **, void *, void *const *, size_t, uint64_t)) \
	PRIVATE(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, (void **, void *, unsigned long long)) \
	PRIVATE(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, (void **, void *, void *)) \
	PRIVATE(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams_ptsz, 12000, (void **, void *, void *)) \
	PRIVATE(cuGraphAddNode, cuGraphAddNode, 12020, (void **, void *, void *const *, size_t, struct any_node *)) \
	PRIVATE(cuGraphAddNode_v2, cuGraphAddNode, 12030, (void **, void *, void *const *, const void *, size_t, struct any_node *)) \
	PRIVATE(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (void *, int)) \
	PRIVATE(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_ptsz, 10010, (void *, int)) \
	PRIVATE(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, (void *, void *, void *, void *, size_t, int)) \
	PRIVATE(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph_ptsz, 12030, (void *, void *, void *, void *, size_t, int)) \
	PRIVATE(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010, (void *, int *, unsigned long long *)) \
	PRIVATE(cuStreamEndCapture, cuStreamEndCapture, 10000, (void *, void **)) \
	PRIVATE(cuStreamEndCapture_ptsz, cuStreamEndCapture_ptsz, 10000, (void *, void **)) \
	PRIVATE(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, (void **, const struct location *, int)) \
	PRIVATE(cuMemGetMemPool, cuMemGetMemPool, 13000, (void **, const struct location *, int)) \
	PRIVATE(cuMemSetMemPool, cuMemSetMemPool, 13000, (const struct location *, int, void *)) \
	PRIVATE(cuGraphLaunch, cuGraphLaunch, 10000, (void *, void *)) \
	PRIVATE(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (void *)) \
	PRIVATE(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (int))

#define PRIVATE_FIELD(symbol, name, version, arguments) int(*symbol) arguments;
struct private_table {
	size_t bytes;
	PRIVATE_FUNCTIONS(PRIVATE_FIELD)
};

static const char private_id[] = "fakecuda private"; // only the first 16 bytes count
