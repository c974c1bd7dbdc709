// SPDX-License-Identifier: Apache-2.0
// The memory of GPUs and processes in the fake libnvidia-ml.so.1.
#define _GNU_SOURCE
#include "nvml.h"
#include <stdlib.h>

static bool integrated(void)
{
	const char *text = getenv("FAKECUDA_INTEGRATED");
	return text && *text == '1';
}

static uint64_t used_by(int slot, int gpu)
{
	struct gpu_books *g = &nvml_books->process[slot].gpu[gpu];
	uint64_t bytes = g->context + g->reserved;
	return bytes && books_owner(nvml_books, nvml_fd, slot) ? bytes : 0;
}

static void memory(nvmlDevice d, struct memory_info *info)
{
	uint64_t used = 0;
	for (unsigned i = 0; i < nvml_books->high; i++)
		for (int g = d->first; g < d->first + d->count; g++)
			used += used_by((int)i, g);
	uint64_t total = nvml_books->capacity * (uint64_t)d->count;
	if (nvml_fault("reserved")) // of the driver, and of no process
		used += 512ull << 20;
	*info = (struct memory_info){total, used < total ? total - used : 0, used};
}

API int nvmlDeviceGetMemoryInfo(nvmlDevice d, struct memory_info *info)
{
	int result = nvml_check(d);
	if (result == SUCCESS && integrated())
		return NOT_SUPPORTED;
	if (result == SUCCESS)
		memory(d, info);
	if (result == SUCCESS && nvml_fault("sizes"))
		*info = (struct memory_info){~0ull, ~0ull, ~0ull};
	return result;
}

API int nvmlDeviceGetMemoryInfo_v2(nvmlDevice d, struct memory_info_v2 *info)
{
	int result = nvml_check(d);
	if (result != SUCCESS)
		return result;
	if (info->version != MEMORY_INFO_V2)
		return INVALID_ARGUMENT;
	if (integrated())
		return NOT_SUPPORTED;
	struct memory_info m;
	memory(d, &m);
	info->total = m.total;
	info->reserved = 0;
	info->free = m.free;
	info->used = m.used;
	return SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice d, unsigned *count, struct process_info *list)
{
	int result = nvml_check(d);
	if (result != SUCCESS)
		return result;
	unsigned room = list ? *count : 0, n = 0;
	for (unsigned i = 0; i < nvml_books->high && !nvml_fault("checkpointed"); i++)
		for (int g = d->first; g < d->first + d->count; g++) {
			uint64_t bytes = used_by((int)i, g);
			pid_t pid = bytes ? books_owner(nvml_books, nvml_fd, (int)i) : 0;
			if (!pid)
				continue;
			if (n < room)
				list[n] = (struct process_info){(uint32_t)pid, bytes, nvml_instance_id(g), nvml_books->mig ? 0 : NO_INSTANCE};
			n++;
		}
	*count = n;
	if (nvml_fault("counts") || nvml_fault("insatiable")) // more entries than fit, with a result of success or not
		*count = 0xfffffff0;
	if (nvml_fault("insatiable"))
		return INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < n && i < room; i++) {
		if (nvml_fault("pids"))
			list[i].pid = 0;
		if (nvml_fault("sizes"))
			list[i].bytes = ~0ull - 1;
	}
	return n > room ? INSUFFICIENT_SIZE : SUCCESS;
}

// Without a version, the function fills the first layout of the structure.
API int nvmlDeviceGetComputeRunningProcesses(nvmlDevice d, unsigned *count, struct process_info_v1 *list)
{
	struct process_info all[MAX_PROCESSES];
	unsigned room = list ? *count : 0, n = MAX_PROCESSES;
	int result = nvmlDeviceGetComputeRunningProcesses_v3(d, &n, all);
	if (result != SUCCESS)
		return result;
	for (unsigned i = 0; i < n && i < room; i++)
		list[i] = (struct process_info_v1){all[i].pid, all[i].bytes};
	*count = n;
	return n > room ? INSUFFICIENT_SIZE : SUCCESS;
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice d, unsigned *count, struct process_info *list __attribute__((unused)))
{
	*count = 0;
	return nvml_check(d);
}
