// SPDX-License-Identifier: Apache-2.0
// The fake CUDA runtime: initialization, devices, plain allocations.
#define _GNU_SOURCE
#include "runtime.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define INTERNAL static __attribute__((noipa))

#define MAX_DEVICES 16
struct private_table cudart_driver;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;
static struct context *primary[MAX_DEVICES]; // kept after a reset: threads may still have it current
static bool retained[MAX_DEVICES];
static int devices;
static _Atomic unsigned generation = 1; // cudaDeviceReset starts a new one

#define THREAD_LOCAL static __thread __attribute__((tls_model("initial-exec")))
THREAD_LOCAL unsigned ready_generation;
THREAD_LOCAL int device;
THREAD_LOCAL int last_error;

static int load_private(void *library)
{
	int (*get)(const void **, const char *) = (int (*)(const void **, const char *))dlsym(library, "cuGetExportTable");
	const void *table;
	if (!get || get(&table, private_id) != 0)
		return INSUFFICIENT_DRIVER;
	cudart_driver = *(const struct private_table *)table;
	return cudart_driver.bytes == sizeof cudart_driver ? SUCCESS : INSUFFICIENT_DRIVER;
}

static int load_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library)
		return INSUFFICIENT_DRIVER;
	const char *way = getenv("FAKECUDA_PRIVATE");
	if (way && *way == '1')
		return load_private(library);
	int (*get)(const char *, void **, int, uint64_t, int *) =
		(int (*)(const char *, void **, int, uint64_t, int *))dlsym(library, "cuGetProcAddress_v2");
	int status;
	if (!get)
		return INSUFFICIENT_DRIVER;
#define LOAD(symbol, name, version, arguments) \
	if (get(#name, (void **)&cudart_driver.symbol, version, 0, &status) != 0) \
		return INSUFFICIENT_DRIVER;
	PRIVATE_FUNCTIONS(LOAD)
	return SUCCESS;
}

static int start(void)
{
	int result = cudart_driver.cuInit ? SUCCESS : load_driver();
	if (result == SUCCESS)
		result = cudart_driver.cuInit(0);
	if (result == SUCCESS)
		result = cudart_driver.cuDeviceGetCount(&devices);
	started = result == SUCCESS;
	return result;
}

// The caller holds lock.
static int retain(int ordinal)
{
	if (ordinal < 0 || ordinal >= devices || ordinal >= MAX_DEVICES)
		return INVALID_DEVICE;
	if (!retained[ordinal]) {
		int result = cudart_driver.cuDevicePrimaryCtxRetain(&primary[ordinal], ordinal);
		if (result != SUCCESS)
			return result;
		retained[ordinal] = true;
	}
	return SUCCESS;
}

static int make_current(int ordinal)
{
	int result = retain(ordinal);
	return result == SUCCESS ? cudart_driver.cuCtxSetCurrent(primary[ordinal]) : result;
}

// A context that the program made current through the driver API stays current.
static int make_ready(void)
{
	struct context *current = NULL;
	int result = cudart_driver.cuCtxGetCurrent(&current);
	if (result != SUCCESS || (current && current != primary[device]))
		return result;
	return make_current(device);
}

INTERNAL int ready_slow(void)
{
	pthread_mutex_lock(&lock);
	int result = started ? SUCCESS : start();
	if (result == SUCCESS)
		result = make_ready();
	if (result == SUCCESS)
		ready_generation = generation;
	pthread_mutex_unlock(&lock);
	return result;
}

static inline int ready(void)
{
	return __builtin_expect(ready_generation == generation, 1) ? SUCCESS : ready_slow();
}

static int record(int result)
{
	if (result != SUCCESS)
		last_error = result;
	return result;
}

int cudart_ready(void) { return ready(); }

int cudart_record(int result) { return record(result); }

int cudart_context(int ordinal, struct context **c)
{
	pthread_mutex_lock(&lock);
	int result = started ? SUCCESS : start();
	if (result == SUCCESS)
		result = retain(ordinal);
	if (result == SUCCESS)
		*c = primary[ordinal];
	pthread_mutex_unlock(&lock);
	return result;
}

INTERNAL int malloc_device(void **out, size_t size)
{
	if (!out)
		return INVALID_VALUE;
	*out = NULL;
	if (!size)
		return SUCCESS;
	int result = ready();
	return result == SUCCESS ? cudart_driver.cuMemAlloc_v2((uint64_t *)out, size) : result;
}

INTERNAL int malloc_managed(void **out, size_t size, unsigned flags)
{
	if (!out || !size)
		return INVALID_VALUE;
	int result = ready();
	return result == SUCCESS ? cudart_driver.cuMemAllocManaged((uint64_t *)out, size, flags) : result;
}

INTERNAL int malloc_host(void **out, size_t size, unsigned flags)
{
	if (!out)
		return INVALID_VALUE;
	*out = NULL;
	if (!size)
		return SUCCESS;
	int result = ready();
	return result == SUCCESS ? cudart_driver.cuMemHostAlloc(out, size, flags) : result;
}

INTERNAL int free_device(void *p)
{
	int result = ready();
	return result == SUCCESS ? cudart_driver.cuMemFree_v2((uint64_t)p) : result;
}

INTERNAL int free_host(void *p)
{
	int result = ready();
	if (result != SUCCESS || !p)
		return result;
	return cudart_driver.cuMemFreeHost(p);
}

INTERNAL int set_device(int ordinal)
{
	int result = SUCCESS;
	pthread_mutex_lock(&lock);
	if (!started)
		result = start();
	if (result == SUCCESS)
		result = make_current(ordinal);
	if (result == SUCCESS) {
		device = ordinal;
		ready_generation = generation;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

INTERNAL int reset_device(void)
{
	int result = ready();
	if (result != SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	result = cudart_driver.cuDevicePrimaryCtxReset_v2(device);
	retained[device] = false;
	generation++;
	pthread_mutex_unlock(&lock);
	return result;
}

API int cudaMalloc(void **p, size_t size)
{
	SAVE_REGISTERS();
	return record(malloc_device(p, size));
}

API int cudaFree(void *p)
{
	SAVE_REGISTERS();
	return record(free_device(p));
}

API int cudaMallocManaged(void **p, size_t size, unsigned flags)
{
	SAVE_REGISTERS();
	return record(malloc_managed(p, size, flags));
}

API int cudaMallocHost(void **p, size_t size)
{
	SAVE_REGISTERS();
	return record(malloc_host(p, size, 0));
}

API int cudaHostAlloc(void **p, size_t size, unsigned flags)
{
	SAVE_REGISTERS();
	return record(malloc_host(p, size, flags));
}

API int cudaFreeHost(void *p)
{
	SAVE_REGISTERS();
	return record(free_host(p));
}

API int cudaSetDevice(int ordinal)
{
	SAVE_REGISTERS();
	return record(set_device(ordinal));
}

API int cudaGetDevice(int *ordinal)
{
	SAVE_REGISTERS();
	*ordinal = device;
	return SUCCESS;
}

API int cudaGetDeviceCount(int *count)
{
	SAVE_REGISTERS();
	pthread_mutex_lock(&lock);
	int result = started ? SUCCESS : start();
	*count = result == SUCCESS ? devices : 0;
	pthread_mutex_unlock(&lock);
	return record(result);
}

API int cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	SAVE_REGISTERS();
	int result = ready();
	return record(result == SUCCESS ? cudart_driver.cuMemGetInfo_v2(free_bytes, total) : result);
}

API int cudaDeviceReset(void)
{
	SAVE_REGISTERS();
	return record(reset_device());
}

API int cudaThreadExit(void)
{
	SAVE_REGISTERS();
	return record(reset_device());
}

API int cudaDeviceSynchronize(void)
{
	SAVE_REGISTERS();
	int result = ready();
	return record(result == SUCCESS ? cudart_driver.cuCtxSynchronize() : result);
}

API int cudaGetLastError(void)
{
	SAVE_REGISTERS();
	int result = last_error;
	last_error = SUCCESS;
	return result;
}

API const char *cudaGetErrorString(int code)
{
	SAVE_REGISTERS();
	switch (code) {
	case SUCCESS: return "no error";
	case INVALID_VALUE: return "invalid argument";
	case 2: return "out of memory";
	case 3: return "initialization error";
	case 4: return "driver shutting down";
	case INSUFFICIENT_DRIVER: return "CUDA driver version is insufficient for CUDA runtime version";
	case NO_DEVICE: return "no CUDA-capable device is detected";
	case INVALID_DEVICE: return "invalid device ordinal";
	case 201: return "invalid device context";
	case 712: return "part or all of the requested memory range is already mapped";
	case 713: return "pointer does not correspond to a registered memory region";
	case 801: return "operation not supported";
	}
	return "unrecognized error code";
}
