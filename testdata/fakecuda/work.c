// SPDX-License-Identifier: Apache-2.0
// Functions that would move data or run code. Device memory has no contents, so they do nothing;
// code is neither compiled nor loaded.
#include "driver.h"

int impl_cuMemsetD32Async(uint64_t to UNUSED, unsigned value UNUSED, size_t count UNUSED, void *stream UNUSED) { return SUCCESS; }

int impl_cuStreamWriteValue32_v2(void *stream UNUSED, uint64_t to UNUSED, unsigned value UNUSED, unsigned flags UNUSED) { return SUCCESS; }

int impl_cuStreamWriteValue32(void *stream UNUSED, uint64_t to UNUSED, unsigned value UNUSED, unsigned flags UNUSED) { return SUCCESS; }

int impl_cuLaunchKernel(void) { return SUCCESS; }

int impl_cuLaunchCooperativeKernel(void) { return SUCCESS; }

#define NONE(symbol) \
	int impl_##symbol(void) { return NOT_SUPPORTED; }
NONE(cuModuleGetFunction)
NONE(cuLinkCreate_v2)
NONE(cuLinkAddData_v2)
NONE(cuLinkComplete)
NONE(cuFuncGetAttribute)
NONE(cuFuncSetAttribute)
NONE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NONE(cuTensorMapEncodeTiled)
NONE(cuMulticastAddDevice)
NONE(cuMulticastBindMem)
