// SPDX-License-Identifier: Apache-2.0

// A libnvidia-ml.so.1 with two or three GPUs. OLD leaves out what an old
// driver lacks, NO_UUID what we cannot do without. Environment: NVML_HANG
// (usage calls never return), NVML_LOST (GPU 1 is lost), NVML_NO_DRIVER.
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

enum { NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };
#define NONE 0xffffffffu
#define NOT_AVAILABLE (~0ull)

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
static const process_info graphics0[] = {{100, 300 << 20, NONE, NONE}, {600, 5, NONE, NONE}};
static const process_info compute1[] = {{100, 1 << 20, NONE, NONE}};

int nvmlInit_v2(void) { return getenv("NVML_NO_DRIVER") ? DRIVER_NOT_LOADED : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
	if (i == 1 && getenv("NVML_LOST"))
		return GPU_IS_LOST;
	*device = (void *)(uintptr_t)(i + 1);
	return 0;
}
#ifndef NO_UUID
int nvmlDeviceGetUUID(void *device, char *out, unsigned n)
{
	snprintf(out, n, "GPU-%d", (int)(uintptr_t)device - 1);
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
	*m = (memory){80ull << 30, 79ull << 30, 1ull << 30};
	return 0;
}
int nvmlSystemGetDriverVersion(char *out, unsigned n) { snprintf(out, n, "550.1"); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_info *to)
{
	if ((uintptr_t)device == 1)
		return lists(compute0, sizeof compute0 / sizeof *compute0, count, to);
	return lists(compute1, 1, count, to);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, process_info *to)
{
	if ((uintptr_t)device == 1)
		return lists(graphics0, 2, count, to);
	return NOT_SUPPORTED;
}
#endif
