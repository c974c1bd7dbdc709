// SPDX-License-Identifier: Apache-2.0

//go:build cgo

// go-nvml calls NVML's functions by name, and leaves it to the dynamic loader to find them at their
// first call. The loader never looks again, so the library could not be unloaded. Here each of
// these names calls what bind_function was told last. All have at most four arguments, integers or
// pointers, and return an nvmlReturn_t.

#include <stddef.h>
#include <string.h>

#include "calls.h"

enum { FUNCTION_NOT_FOUND = 13 };

#define FUNCTIONS(X) \
	X(nvmlSystemGetDriverVersion) X(nvmlDeviceGetCount) X(nvmlDeviceGetHandleByIndex) X(nvmlDeviceGetUUID) X(nvmlDeviceGetName) \
	X(nvmlDeviceGetMemoryInfo) X(nvmlDeviceGetMinorNumber) X(nvmlDeviceGetMigMode) X(nvmlDeviceGetMaxMigDeviceCount) \
	X(nvmlDeviceGetMigDeviceHandleByIndex) X(nvmlDeviceGetGpuInstanceId) X(nvmlDeviceGetComputeInstanceId) \
	X(nvmlDeviceGetAddressingMode) X(nvmlDeviceGetNumaNodeId)

typedef int (*function)(long, long, long, long);

#define AT(name) at_##name,
enum { FUNCTIONS(AT) FUNCTION_COUNT };

#define NAME(name) #name,
static const char *const names[] = {FUNCTIONS(NAME)};
static function functions[FUNCTION_COUNT];

#define CALL(name) \
	__attribute__((visibility("hidden"))) int name(long a, long b, long c, long d) \
	{ \
		return functions[at_##name] ? functions[at_##name](a, b, c, d) : FUNCTION_NOT_FOUND; \
	}
FUNCTIONS(CALL)

int bind_function(const char *name, void *function_or_null)
{
	for (int i = 0; i < FUNCTION_COUNT; i++)
		if (strcmp(names[i], name) == 0) {
			functions[i] = (function)function_or_null;
			return 1;
		}
	return 0;
}
