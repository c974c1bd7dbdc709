// SPDX-License-Identifier: Apache-2.0
// The runtime's streams, copies and launches. Everything completes at once: kernels do nothing,
// device memory reads as zeros.
#include "../fakecuda/runtime.h"
#include <stdatomic.h>
#include <string.h>

#define UNUSED __attribute__((unused))

static int name(void **out) // of a stream or an event
{
	static _Atomic uintptr_t last = 0x5000;
	*out = (void *)atomic_fetch_add(&last, 16);
	return SUCCESS;
}

API int cudaStreamCreate(void **stream) { return name(stream); }

API int cudaStreamCreateWithFlags(void **stream, unsigned flags UNUSED) { return name(stream); }

API int cudaStreamCreateWithPriority(void **stream, unsigned flags UNUSED, int priority UNUSED) { return name(stream); }

API int cudaStreamGetPriority(void *stream UNUSED, int *priority)
{
	*priority = 0;
	return SUCCESS;
}

API int cudaEventCreate(void **event) { return name(event); }

API int cudaEventCreateWithFlags(void **event, unsigned flags UNUSED) { return name(event); }

API int cudaEventElapsedTime(float *ms, void *from UNUSED, void *to UNUSED)
{
	*ms = 0.1f;
	return SUCCESS;
}

// Launches during a stream's capture are not recorded.
enum { CAPTURE_NONE, CAPTURE_ACTIVE };

API int cudaStreamIsCapturing(void *stream, int *status)
{
	unsigned long long id;
	int result = cudart_ready();
	return cudart_record(result == SUCCESS ? cudart_driver.cuStreamGetCaptureInfo(stream, status, &id) : result);
}

API int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph, const void ***needs, size_t *count)
{
	unsigned long long capture = 0;
	int result = cudart_ready();
	if (result == SUCCESS)
		result = cudart_driver.cuStreamGetCaptureInfo(stream, status, &capture);
	if (id)
		*id = *status == CAPTURE_ACTIVE ? capture : 0;
	if (graph)
		*graph = NULL;
	if (needs)
		*needs = NULL;
	if (count)
		*count = 0;
	return cudart_record(result);
}

API int cudaGraphGetNodes(void *graph UNUSED, void **nodes UNUSED, size_t *count)
{
	*count = 1;
	return SUCCESS;
}

API int cudaThreadExchangeStreamCaptureMode(int *mode UNUSED) { return SUCCESS; }

API int cudaLaunchHostFunc(void *stream UNUSED, void (*function)(void *), void *argument)
{
	function(argument);
	return SUCCESS;
}

static int on_device(const void *address)
{
	enum { TYPE = 2, DEVICE = 2 };
	unsigned type = 0;
	return cudart_driver.cuPointerGetAttribute(&type, TYPE, (uint64_t)address) == SUCCESS && type == DEVICE;
}

API int cudaMemcpy(void *to, const void *from, size_t size, int kind)
{
	enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT };
	int result = cudart_ready();
	if (result != SUCCESS)
		return cudart_record(result);
	if (kind == DEFAULT)
		kind = (on_device(from) ? DEVICE_TO_HOST : HOST_TO_HOST) + (on_device(to) ? HOST_TO_DEVICE : HOST_TO_HOST);
	if (kind == HOST_TO_HOST)
		memcpy(to, from, size);
	else if (kind == DEVICE_TO_HOST)
		memset(to, 0, size);
	return SUCCESS;
}

API int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream UNUSED) { return cudaMemcpy(to, from, size, kind); }

// Launches. A kernel called with <<<>>> reads its launch configuration.
API int cudaLaunchKernel(void) { return cudart_record(cudart_ready()); }

API int cudaLaunchKernelExC(void) { return cudart_record(cudart_ready()); }

API unsigned __cudaPopCallConfiguration(unsigned grid[3], unsigned block[3], size_t *shared, void **stream)
{
	for (int i = 0; i < 3; i++)
		grid[i] = block[i] = 1;
	*shared = 0;
	*stream = NULL;
	return 0;
}

API void **__cudaRegisterFatBinary(void *binary UNUSED)
{
	static void *handle;
	return &handle;
}
