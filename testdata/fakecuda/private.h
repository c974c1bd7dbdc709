// SPDX-License-Identifier: Apache-2.0
// The driver functions that the runtime calls: PRIVATE(symbol, name, version, arguments).
// Behind cuGetExportTable libcuda offers the same functions without the exported stubs.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct context;

#define PRIVATE_FUNCTIONS(PRIVATE) \
	PRIVATE(cuInit, cuInit, 2000, (unsigned)) \
	PRIVATE(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *)) \
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
	PRIVATE(cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t *, size_t *))

#define PRIVATE_FIELD(symbol, name, version, arguments) int(*symbol) arguments;
struct private_table {
	size_t bytes;
	PRIVATE_FUNCTIONS(PRIVATE_FIELD)
};

static const char private_id[] = "fakecuda private"; // 16 bytes count
