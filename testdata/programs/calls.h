// SPDX-License-Identifier: Apache-2.0
// The functions that calls_c can call: FUNCTION(name, arguments), one letter per argument.
//   o output word, stored under the given name O the same with 32 bits
//   q output word, stored under NAME.pitch     Q the same with 32 bits
//   i word: a name or a number                 s number (K, M, G)
//   0 1 2 4 that number                        v number, passed by its address
//   D cudaPitchedPtr, output                   N alloc node: NAME DEVICE SIZE
//   p pool properties: DEVICE[,MAXIMUM]        P allocation properties: DEVICE or host, then ",fd"
//   u stream: a number, 0 if omitted           E location: DEVICE or host
//   K generic node: NAME DEVICE SIZE, free NAME, or kernel    Z code: elf, fatbin or ptx, then SIZE
//   A access: DEVICE                           M multicast properties: SIZE
//   a b array descriptor W,H,D,BITS,CHANNELS   c d the same in 3 dimensions; b and d with 32 bits
//   f channel format: BITS,CHANNELS            e extent by value: W,H,D
//   H handle of 64 bytes, written to FILE      h G handle from FILE, by value or address
//   W descriptor, its path is written to FILE  w descriptor opened by the path in FILE
//   m n mipmap of external memory: W,H,D,BITS,CHANNELS; runtime
//   x y external memory of SIZE: driver, runtime    z buffer: SIZE[,OFFSET]
#ifdef CUDART_13
#define ADD_NODE "oi000K"
#else
#define ADD_NODE "oi00K"
#endif
#define RUNTIME_FUNCTIONS(FUNCTION) \
	FUNCTION(cudaMalloc, "os") FUNCTION(cudaFree, "i") FUNCTION(cudaMallocManaged, "os1") \
	FUNCTION(cudaMallocHost, "os") FUNCTION(cudaHostAlloc, "os0") FUNCTION(cudaFreeHost, "i") \
	FUNCTION(cudaMallocPitch, "oqss") FUNCTION(cudaMalloc3D, "De") \
	FUNCTION(cudaMallocArray, "ofss0") FUNCTION(cudaMalloc3DArray, "ofe0") FUNCTION(cudaMallocMipmappedArray, "ofes0") \
	FUNCTION(cudaFreeArray, "i") FUNCTION(cudaFreeMipmappedArray, "i") \
	FUNCTION(cudaHostRegister, "is0") FUNCTION(cudaHostUnregister, "i") \
	FUNCTION(cudaMallocAsync, "osu") FUNCTION(cudaMallocAsync_ptsz, "osu") \
	FUNCTION(cudaMallocFromPoolAsync, "osiu") FUNCTION(cudaMallocFromPoolAsync_ptsz, "osiu") \
	FUNCTION(cudaFreeAsync, "iu") FUNCTION(cudaFreeAsync_ptsz, "iu") FUNCTION(cudaStreamSynchronize, "0") \
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
	FUNCTION(cudaGraphAddNode, ADD_NODE) FUNCTION(cudaGraphAddNode_v2, "oi000K") \
	FUNCTION(cudaGraphInstantiateWithFlags, "oi0") FUNCTION(cudaGraphInstantiateWithParams, "oi0") FUNCTION(cudaGraphInstantiateWithParams_ptsz, "oi0") \
	FUNCTION(cudaStreamBeginCapture, "s0") FUNCTION(cudaStreamBeginCapture_ptsz, "s0") FUNCTION(cudaStreamEndCapture, "so") \
	FUNCTION(cudaStreamEndCapture_ptsz, "so") FUNCTION(cudaStreamBeginCaptureToGraph, "si0000") FUNCTION(cudaStreamBeginCaptureToGraph_ptsz, "si0000") \
	FUNCTION(cudaSetDevice, "s") FUNCTION(cudaGetDevice, "O") FUNCTION(cudaInitDevice, "s00") \
	FUNCTION(cudaDeviceSynchronize, "") FUNCTION(cudaDeviceReset, "") FUNCTION(cudaThreadExit, "")

// Functions that NVIDIA's runtime has from CUDA 13 on.
#define LATE_RUNTIME_FUNCTIONS(FUNCTION) \
	FUNCTION(cudaMemGetDefaultMemPool, "oEs") FUNCTION(cudaMemGetMemPool, "oEs") FUNCTION(cudaMemSetMemPool, "Esi")

#define DRIVER_FUNCTIONS(FUNCTION) \
	FUNCTION(cuInit, "0") FUNCTION(cuMemAlloc_v2, "os") FUNCTION(cuMemFree_v2, "i") FUNCTION(cuMemAllocManaged, "os1") \
	FUNCTION(cuMemAllocHost_v2, "os") FUNCTION(cuMemHostAlloc, "os0") FUNCTION(cuMemFreeHost, "i") \
	FUNCTION(cuMemAllocPitch_v2, "oqss4") FUNCTION(cuMemHostRegister_v2, "is0") FUNCTION(cuMemHostUnregister, "i") \
	FUNCTION(cuMemAllocAsync, "osu") FUNCTION(cuMemAllocAsync_ptsz, "osu") \
	FUNCTION(cuMemAllocFromPoolAsync, "osiu") FUNCTION(cuMemAllocFromPoolAsync_ptsz, "osiu") \
	FUNCTION(cuMemFreeAsync, "iu") FUNCTION(cuMemFreeAsync_ptsz, "iu") \
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
	FUNCTION(cuGraphAddNode, "oi00K") FUNCTION(cuGraphAddNode_v2, "oi000K") FUNCTION(cuGraphInstantiate, "oi000") \
	FUNCTION(cuGraphInstantiate_v2, "oi000") FUNCTION(cuGraphInstantiateWithParams, "oi0") FUNCTION(cuGraphInstantiateWithParams_ptsz, "oi0") \
	FUNCTION(cuStreamBeginCapture, "s0") FUNCTION(cuStreamBeginCapture_ptsz, "s0") FUNCTION(cuStreamBeginCapture_v2, "s0") \
	FUNCTION(cuStreamBeginCapture_v2_ptsz, "s0") FUNCTION(cuStreamBeginCaptureToGraph, "si0000") FUNCTION(cuStreamBeginCaptureToGraph_ptsz, "si0000") \
	FUNCTION(cuStreamEndCapture, "so") FUNCTION(cuStreamEndCapture_ptsz, "so") \
	FUNCTION(cuMemGetDefaultMemPool, "oEs") FUNCTION(cuMemGetMemPool, "oEs") FUNCTION(cuMemSetMemPool, "Esi") \
	FUNCTION(cuModuleLoad, "oZ") FUNCTION(cuModuleLoadData, "oZ") FUNCTION(cuModuleLoadDataEx, "oZ000") FUNCTION(cuModuleLoadFatBinary, "oZ") \
	FUNCTION(cuModuleUnload, "i") FUNCTION(cuLibraryLoadData, "oZ0000") FUNCTION(cuLibraryLoadFromFile, "oZ0000") FUNCTION(cuLibraryUnload, "i") \
	FUNCTION(cuGreenCtxCreate, "o0s0") FUNCTION(cuGreenCtxDestroy, "i") FUNCTION(cuCtxFromGreenCtx, "oi") \
	FUNCTION(cuCtxCreate_v2, "o0s") FUNCTION(cuCtxCreate_v3, "o000s") FUNCTION(cuCtxCreate_v4, "o00s") FUNCTION(cuCtxDestroy_v2, "i") \
	FUNCTION(cuDevicePrimaryCtxRetain, "os") FUNCTION(cuDevicePrimaryCtxRelease_v2, "s") FUNCTION(cuDevicePrimaryCtxReset_v2, "s") \
	FUNCTION(cuCtxSetCurrent, "i") FUNCTION(cuCtxGetCurrent, "o") FUNCTION(cuCtxGetDevice, "O") \
	FUNCTION(cuCtxPushCurrent_v2, "i") FUNCTION(cuCtxPopCurrent_v2, "o") \
	FUNCTION(cuMemAlloc, "Os") FUNCTION(cuMemFree, "i") FUNCTION(cuMemAllocPitch, "OQss4") FUNCTION(cuMemAllocHost, "os") \
	FUNCTION(cuMemHostRegister, "is0") FUNCTION(cuArrayCreate, "ob") FUNCTION(cuArray3DCreate, "od") \
	FUNCTION(cuCtxCreate, "o0s") FUNCTION(cuCtxDestroy, "i") FUNCTION(cuCtxPushCurrent, "i") FUNCTION(cuCtxPopCurrent, "o") \
	FUNCTION(cuDevicePrimaryCtxRelease, "s") FUNCTION(cuDevicePrimaryCtxReset, "s")
