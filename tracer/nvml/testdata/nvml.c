// SPDX-License-Identifier: Apache-2.0

// A libnvidia-ml.so.1 with two GPUs. Macros: HIDDEN adds processes without a pid
// and a list of clients of MPS, OLD omits what an old driver lacks, NO_IDS one of the
// calls for MIG, NO_UUID a required function. Environment: NVML_HANG (usage calls never return),
// NVML_LOST (GPU 1 is lost), NVML_DENIED (GPU 1 is not accessible), NVML_NO_DRIVER, NVML_MIG (GPU 0
// has instances 0, 2 and 3, of which 3 is not accessible), NVML_MIG_USER (the caller is not an
// administrator).
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
	unsigned pid;
	unsigned long long bytes;
	unsigned gpu_instance, compute_instance;
} process_info;

typedef struct {
	unsigned long long total, free, used;
} memory;

enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };
#define NONE 0xffffffffu
#define NOT_AVAILABLE (~0ull)
#define INSTANCES 100 // handles at or above this are instances

// A handle is a real address: Go ends a program with an invalid pointer on a stack that it moves.
static char handles[256];
#define NUMBER(device) ((uintptr_t)(device) - (uintptr_t)handles)

static int lists(const process_info *from, unsigned n, unsigned *count, process_info *to)
{
	unsigned room = *count;
	if (getenv("NVML_HANG"))
		for (;;)
			pause();
	*count = n;
	if (n > room)
		return INSUFFICIENT_SIZE;
	memcpy(to, from, n * sizeof *from);
	return 0;
}

static const process_info compute0[] = {
	{100, 300 << 20, NONE, NONE}, {200, 1ull << 40, NONE, NONE}, {300, NOT_AVAILABLE, NONE, NONE},
	{400, 10, 1, 0}, {400, 20, 2, 0}, {500, 7, NONE, NONE},
};
#ifdef HIDDEN
static const process_info mps0[] = {{400, 10, NONE, NONE}, {200, 1ull << 40, NONE, NONE}, {0, 3, NONE, NONE}};
#endif
static const process_info graphics0[] = {{100, 300 << 20, NONE, NONE}, {600, 5, NONE, NONE}};
static const process_info of_instance0[] = {{400, 10, NONE, NONE}};
#ifdef HIDDEN
static const process_info compute1[] = {{100, 1 << 20, NONE, NONE}, {0, 5 << 20, NONE, NONE}, {0, 2 << 20, NONE, NONE}, {0, NOT_AVAILABLE, NONE, NONE}};
#else
static const process_info compute1[] = {{100, 1 << 20, NONE, NONE}};
#endif

int nvmlInit_v2(void) { return getenv("NVML_NO_DRIVER") ? DRIVER_NOT_LOADED : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
	if (i == 1 && getenv("NVML_LOST"))
		return GPU_IS_LOST;
	if (i == 1 && getenv("NVML_DENIED"))
		return NO_PERMISSION;
	*device = &handles[i + 1];
	return 0;
}
#ifndef NO_UUID
int nvmlDeviceGetUUID(void *device, char *out, unsigned n)
{
	int number = (int)NUMBER(device) - 1;
	snprintf(out, n, number >= INSTANCES ? "MIG-%d" : "GPU-%d", number % INSTANCES);
	return 0;
}
#endif
#ifdef OLD
typedef struct {
	unsigned pid;
	unsigned long long bytes;
} process_info_v1;
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, process_info_v1 *to)
{
	*count = 1;
	to[0] = (process_info_v1){100, 1 << 20};
	return 0;
}
#else
int nvmlDeviceGetName(void *device, char *out, unsigned n) { snprintf(out, n, "Fake GPU"); return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory *m)
{
	if (NUMBER(device) > INSTANCES)
		*m = (memory){20ull << 30, 19ull << 30, 1ull << 30};
	else
		*m = (memory){80ull << 30, 79ull << 30, 1ull << 30};
	return 0;
}
int nvmlSystemGetDriverVersion(char *out, unsigned n) { snprintf(out, n, "550.1"); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_info *to)
{
	if (NUMBER(device) == 1 && getenv("NVML_MIG_USER"))
		return NO_PERMISSION;
	if (NUMBER(device) > INSTANCES)
		return lists(of_instance0, NUMBER(device) == INSTANCES + 1, count, to);
	if (NUMBER(device) == 1)
		return lists(compute0, sizeof compute0 / sizeof *compute0, count, to);
	return lists(compute1, sizeof compute1 / sizeof *compute1, count, to);
}
#ifdef HIDDEN
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count, process_info *to)
{
	return NUMBER(device) == 1 ? lists(mps0, 3, count, to) : lists(compute1 + 1, 1, count, to);
}
#endif
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, process_info *to)
{
	if (NUMBER(device) == 1)
		return lists(graphics0, 2, count, to);
	return NOT_SUPPORTED;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
	*current = *pending = NUMBER(device) == 1;
	return getenv("NVML_MIG") ? 0 : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned i, void **instance)
{
	*instance = &handles[INSTANCES + 1 + i];
	return i == 0 || i == 2 ? 0 : i == 3 ? NO_PERMISSION : NOT_FOUND;
}
#ifndef NO_IDS
int nvmlDeviceGetGpuInstanceId(void *device, unsigned *id)
{
	*id = (unsigned)NUMBER(device) - INSTANCES;
	return NUMBER(device) > INSTANCES ? 0 : INVALID_ARGUMENT;
}
#endif
int nvmlDeviceGetComputeInstanceId(void *device, unsigned *id) { *id = 0; return 0; }
#endif
