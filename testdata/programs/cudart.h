// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA API that the test programs use.
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaMallocHost(void **, size_t);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaFreeHost(void *);
int cudaSetDevice(int);
int cudaDeviceReset(void);
int cudaMemGetInfo(size_t *, size_t *);
#ifdef __cplusplus
}
#endif
