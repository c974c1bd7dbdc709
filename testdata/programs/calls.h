// SPDX-License-Identifier: Apache-2.0
// The functions that calls_c knows: FUNCTION(name, arguments), a letter each.
//   o output word, kept under the name given   O the same of 32 bits
//   q output word, kept under NAME.pitch       Q the same of 32 bits
//   i word: a name or a number                 s number (K, M, G)
//   0 1 2 4 that number                        v number, passed by its address
//   D cudaPitchedPtr, output                   N alloc node: NAME DEVICE SIZE
//   p pool properties: DEVICE[,MAXIMUM]        P allocation properties: DEVICE or host, then ",fd"
//   A access: DEVICE                           M multicast properties: SIZE
//   a b array descriptor W,H,D,BITS,CHANNELS   c d the same of 3 dimensions; b and d of 32 bits
//   f channel format: BITS,CHANNELS            e extent by value: W,H,D
//   H handle of 64 bytes, written to FILE      h G handle from FILE, by value or address
//   W descriptor, its path is written to FILE  w descriptor opened by the path in FILE
//   m n mipmap of external memory: W,H,D,BITS,CHANNELS; runtime
//   x y external memory of SIZE: driver, runtime    z buffer: SIZE[,OFFSET]
#define RUNTIME_FUNCTIONS(FUNCTION) \
	FUNCTION(cudaMalloc, "os") FUNCTION(cudaFree, "i") FUNCTION(cudaMallocManaged, "os1") \
	FUNCTION(cudaMallocHost, "os") FUNCTION(cudaHostAlloc, "os0") FUNCTION(cudaFreeHost, "i") \
	FUNCTION(cudaMallocPitch, "oqss") FUNCTION(cudaMalloc3D, "De") \
	FUNCTION(cudaMallocArray, "ofss0") FUNCTION(cudaMalloc3DArray, "ofe0") FUNCTION(cudaMallocMipmappedArray, "ofes0") \
	FUNCTION(cudaFreeArray, "i") FUNCTION(cudaFreeMipmappedArray, "i") \
	FUNCTION(cudaHostRegister, "is0") FUNCTION(cudaHostUnregister, "i") \
	FUNCTION(cudaMallocAsync, "os0") FUNCTION(cudaMallocAsync_ptsz, "os0") \
	FUNCTION(cudaMallocFromPoolAsync, "osi0") FUNCTION(cudaMallocFromPoolAsync_ptsz, "osi0") \
	FUNCTION(cudaFreeAsync, "i0") FUNCTION(cudaFreeAsync_ptsz, "i0") FUNCTION(cudaStreamSynchronize, "0") \
	FUNCTION(cudaMemPoolCreate, "op") FUNCTION(cudaMemPoolDestroy, "i") FUNCTION(cudaMemPoolTrimTo, "is") \
	FUNCTION(cudaMemPoolSetAttribute, "isv") FUNCTION(cudaMemPoolGetAttribute, "iso") \
	FUNCTION(cudaMemPoolExportPointer, "Hi") FUNCTION(cudaMemPoolImportPointer, "oiG") \
	FUNCTION(cudaDeviceGetDefaultMemPool, "os") FUNCTION(cudaDeviceGetMemPool, "os") FUNCTION(cudaDeviceSetMemPool, "si") \
	FUNCTION(cudaIpcGetMemHandle, "Hi") FUNCTION(cudaIpcOpenMemHandle, "oh1") FUNCTION(cudaIpcCloseMemHandle, "i") \
	FUNCTION(cudaImportExternalMemory, "oy") FUNCTION(cudaExternalMemoryGetMappedBuffer, "oiz") FUNCTION(cudaDestroyExternalMemory, "i") \
	FUNCTION(cudaExternalMemoryGetMappedMipmappedArray, "oin") \
	FUNCTION(cudaGraphCreate, "o0") FUNCTION(cudaGraphDestroy, "i") FUNCTION(cudaGraphAddMemAllocNode, "oi00N") \
	FUNCTION(cudaGraphAddMemFreeNode, "oi00i") FUNCTION(cudaGraphInstantiate, "oi0") FUNCTION(cudaGraphLaunch, "i0") \
	FUNCTION(cudaGraphExecDestroy, "i") FUNCTION(cudaDeviceGraphMemTrim, "s") \
	FUNCTION(cudaSetDevice, "s") FUNCTION(cudaGetDevice, "O") FUNCTION(cudaInitDevice, "s00") \
	FUNCTION(cudaDeviceSynchronize, "") FUNCTION(cudaDeviceReset, "") FUNCTION(cudaThreadExit, "")

#define DRIVER_FUNCTIONS(FUNCTION) \
	FUNCTION(cuInit, "0") FUNCTION(cuMemAlloc_v2, "os") FUNCTION(cuMemFree_v2, "i") FUNCTION(cuMemAllocManaged, "os1") \
	FUNCTION(cuMemAllocHost_v2, "os") FUNCTION(cuMemHostAlloc, "os0") FUNCTION(cuMemFreeHost, "i") \
	FUNCTION(cuMemAllocPitch_v2, "oqss4") FUNCTION(cuMemHostRegister_v2, "is0") FUNCTION(cuMemHostUnregister, "i") \
	FUNCTION(cuMemAllocAsync, "os0") FUNCTION(cuMemAllocAsync_ptsz, "os0") \
	FUNCTION(cuMemAllocFromPoolAsync, "osi0") FUNCTION(cuMemAllocFromPoolAsync_ptsz, "osi0") \
	FUNCTION(cuMemFreeAsync, "i0") FUNCTION(cuMemFreeAsync_ptsz, "i0") \
	FUNCTION(cuCtxSynchronize, "") FUNCTION(cuStreamSynchronize, "0") FUNCTION(cuStreamSynchronize_ptsz, "0") \
	FUNCTION(cuMemPoolCreate, "op") FUNCTION(cuMemPoolDestroy, "i") FUNCTION(cuMemPoolTrimTo, "is") \
	FUNCTION(cuMemPoolSetAttribute, "isv") FUNCTION(cuMemPoolGetAttribute, "iso") \
	FUNCTION(cuMemPoolExportPointer, "Hi") FUNCTION(cuMemPoolImportPointer, "oiG") \
	FUNCTION(cuDeviceGetDefaultMemPool, "os") FUNCTION(cuDeviceGetMemPool, "os") FUNCTION(cuDeviceSetMemPool, "si") \
	FUNCTION(cuMemCreate, "osP0") FUNCTION(cuMemRelease, "i") FUNCTION(cuMemRetainAllocationHandle, "oi") \
	FUNCTION(cuMemMap, "issi0") FUNCTION(cuMemUnmap, "is") FUNCTION(cuMemSetAccess, "isA1") \
	FUNCTION(cuMemAddressReserve, "os000") FUNCTION(cuMemAddressFree, "is") FUNCTION(cuMemGetAllocationGranularity, "oP0") \
	FUNCTION(cuMemExportToShareableHandle, "Wi10") FUNCTION(cuMemImportFromShareableHandle, "ow1") FUNCTION(cuMulticastCreate, "oM") \
	FUNCTION(cuArrayCreate_v2, "oa") FUNCTION(cuArray3DCreate_v2, "oc") FUNCTION(cuArrayDestroy, "i") \
	FUNCTION(cuMipmappedArrayCreate, "ocs") FUNCTION(cuMipmappedArrayDestroy, "i") \
	FUNCTION(cuIpcGetMemHandle, "Hi") FUNCTION(cuIpcOpenMemHandle, "oh1") FUNCTION(cuIpcOpenMemHandle_v2, "oh1") FUNCTION(cuIpcCloseMemHandle, "i") \
	FUNCTION(cuImportExternalMemory, "ox") FUNCTION(cuExternalMemoryGetMappedBuffer, "oiz") FUNCTION(cuDestroyExternalMemory, "i") \
	FUNCTION(cuExternalMemoryGetMappedMipmappedArray, "oim") \
	FUNCTION(cuGraphCreate, "o0") FUNCTION(cuGraphDestroy, "i") FUNCTION(cuGraphAddMemAllocNode, "oi00N") \
	FUNCTION(cuGraphAddMemFreeNode, "oi00i") FUNCTION(cuGraphInstantiateWithFlags, "oi0") FUNCTION(cuGraphLaunch, "i0") \
	FUNCTION(cuGraphLaunch_ptsz, "i0") FUNCTION(cuGraphExecDestroy, "i") FUNCTION(cuDeviceGraphMemTrim, "s") \
	FUNCTION(cuCtxCreate_v2, "o0s") FUNCTION(cuCtxCreate_v3, "o000s") FUNCTION(cuCtxCreate_v4, "o00s") FUNCTION(cuCtxDestroy_v2, "i") \
	FUNCTION(cuDevicePrimaryCtxRetain, "os") FUNCTION(cuDevicePrimaryCtxRelease_v2, "s") FUNCTION(cuDevicePrimaryCtxReset_v2, "s") \
	FUNCTION(cuCtxSetCurrent, "i") FUNCTION(cuCtxGetCurrent, "o") FUNCTION(cuCtxGetDevice, "O") \
	FUNCTION(cuCtxPushCurrent_v2, "i") FUNCTION(cuCtxPopCurrent_v2, "o") \
	FUNCTION(cuMemAlloc, "Os") FUNCTION(cuMemFree, "i") FUNCTION(cuMemAllocPitch, "OQss4") FUNCTION(cuMemAllocHost, "os") \
	FUNCTION(cuMemHostRegister, "is0") FUNCTION(cuArrayCreate, "ob") FUNCTION(cuArray3DCreate, "od") \
	FUNCTION(cuCtxCreate, "o0s") FUNCTION(cuCtxDestroy, "i") FUNCTION(cuCtxPushCurrent, "i") FUNCTION(cuCtxPopCurrent, "o") \
	FUNCTION(cuDevicePrimaryCtxRelease, "s") FUNCTION(cuDevicePrimaryCtxReset, "s")
