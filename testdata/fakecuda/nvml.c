// SPDX-License-Identifier: Apache-2.0
// The fake libnvidia-ml.so.1: reports the books of the simulated machine.
#define _GNU_SOURCE
#include "books.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, LIB_RM_VERSION_MISMATCH = 18, UNKNOWN = 999 };

#define MEMORY_INFO_V2 (40 | 2 << 24)
#define NO_INSTANCE 0xffffffffu

typedef struct handle *nvmlDevice;
// A handle is one GPU of the books or, with MIG, all instances of a GPU.
static struct handle {
	int index, first, count;
} handles[MAX_GPUS], instances[MAX_GPUS];
static struct books *books;
static int fd;
static int references;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct process_info {
	uint32_t pid;
	uint64_t bytes;
	uint32_t gpu_instance, compute_instance;
};
struct process_info_v1 {
	uint32_t pid;
	uint64_t bytes;
};
struct memory_info {
	uint64_t total, free, used;
};
struct memory_info_v2 {
	uint32_t version;
	uint64_t total, reserved, free, used;
};
struct pci_info {
	char legacy[16];
	uint32_t domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

// fault reports whether the file named by FAKECUDA_NVML_FAULTS contains a word now.
static bool fault(const char *word)
{
	const char *path = getenv("FAKECUDA_NVML_FAULTS");
	char text[256] = " ";
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0)
		return false;
	ssize_t n = read(file, text + 1, sizeof text - 3);
	close(file);
	text[n < 0 ? 1 : n + 1] = ' ';
	for (const char *at = text; (at = strstr(at, word)); at++)
		if (at[-1] <= ' ' && at[strlen(word)] <= ' ')
			return true;
	return false;
}

static void hang(const char *word)
{
	while (fault(word))
		usleep(10000);
}

static unsigned gpus(void) { return (unsigned)books->gpus / (books->mig ? MIG_INSTANCES : 1); }

static bool is_instance(nvmlDevice d) { return books->mig && d >= instances && d < instances + books->gpus; }

static int check(nvmlDevice d)
{
	hang("hang");
	if (fault("unloaded"))
		references = 0;
	if (!references)
		return UNINITIALIZED;
	if (fault("lost"))
		return GPU_IS_LOST;
	return is_instance(d) || (d >= handles && d < handles + gpus()) ? SUCCESS : INVALID_ARGUMENT;
}

static int copy(char *out, unsigned length, const char *text)
{
	if (strlen(text) >= length)
		return INSUFFICIENT_SIZE;
	strcpy(out, text);
	if (fault("strings")) { // unterminated strings that would affect a terminal
		memset(out, 'x', length);
		memcpy(out, "\033[31m\377", 6);
	}
	return SUCCESS;
}

static void bus_id(int index, char *text, size_t length) { snprintf(text, length, "%08X:%02X:00.0", 0, index + 1); }

// The file stays open after nvmlShutdown: closing it would release libcuda's lock in this process.
API int nvmlInit_v2(void)
{
	hang("hang-init");
	if (fault("unloaded"))
		return DRIVER_NOT_LOADED;
	if (fault("mismatch"))
		return LIB_RM_VERSION_MISMATCH;
	if (fault("forbidden"))
		return NO_PERMISSION;
	if (fault("no-gpu"))
		return NOT_FOUND;
	pthread_mutex_lock(&lock);
	if (!books)
		books = books_open(&fd);
	if (books)
		references++;
	for (int i = 0; books && i < MAX_GPUS; i++) {
		int each = books->mig ? MIG_INSTANCES : 1;
		handles[i] = (struct handle){i, i * each, each};
		instances[i] = (struct handle){i, i, 1};
	}
	pthread_mutex_unlock(&lock);
	return books ? SUCCESS : UNKNOWN;
}

API int nvmlInit(void) { return nvmlInit_v2(); }

API int nvmlShutdown(void)
{
	hang("hang-end");
	pthread_mutex_lock(&lock);
	int result = references ? SUCCESS : UNINITIALIZED;
	if (references)
		references--;
	pthread_mutex_unlock(&lock);
	return result;
}

API const char *nvmlErrorString(int code)
{
	switch (code) {
	case SUCCESS: return "Success";
	case UNINITIALIZED: return "Uninitialized";
	case INVALID_ARGUMENT: return "Invalid Argument";
	case NOT_SUPPORTED: return "Not Supported";
	case NOT_FOUND: return "Not Found";
	case INSUFFICIENT_SIZE: return "Insufficient Size";
	}
	return "Unknown Error";
}

API int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
	return references ? copy(version, length, "550.54.14") : UNINITIALIZED;
}

API int nvmlDeviceGetCount_v2(unsigned *count)
{
	hang("hang");
	if (fault("unloaded"))
		references = 0;
	if (!references)
		return UNINITIALIZED;
	*count = fault("one") ? 1 : fault("many") ? 0xfffffff0 : gpus();
	return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice *d)
{
	if (!references)
		return UNINITIALIZED;
	if (index >= gpus())
		return INVALID_ARGUMENT;
	*d = &handles[index];
	return SUCCESS;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *d)
{
	char own[41];
	for (unsigned i = 0; references && i < gpus(); i++) {
		gpu_uuid_text((int)i, own);
		if (strcmp(uuid, own) == 0) {
			*d = &handles[i];
			return SUCCESS;
		}
	}
	for (unsigned i = 0; references && books->mig && i < books->gpus; i++) {
		mig_uuid_text((int)i, own);
		if (strcmp(uuid, own) == 0) {
			*d = &instances[i];
			return SUCCESS;
		}
	}
	return references ? NOT_FOUND : UNINITIALIZED;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice *d)
{
	unsigned domain, bus, slot;
	if (!references)
		return UNINITIALIZED;
	if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
		return INVALID_ARGUMENT;
	if (domain || slot || bus < 1 || bus > gpus())
		return NOT_FOUND;
	*d = &handles[bus - 1];
	return SUCCESS;
}

API int nvmlDeviceGetUUID(nvmlDevice d, char *uuid, unsigned length)
{
	char own[41];
	int result = check(d);
	if (result != SUCCESS)
		return result;
	(is_instance(d) ? mig_uuid_text : gpu_uuid_text)(d->index, own);
	return copy(uuid, length, own);
}

API int nvmlDeviceGetName(nvmlDevice d, char *name, unsigned length)
{
	int result = check(d);
	char own[32] = "Fake GPU";
	if (getenv("FAKECUDA_ORDER")) // of different models
		snprintf(own, sizeof own, "Fake GPU %c", 'A' + (is_instance(d) ? d->index / MIG_INSTANCES : d->index));
	return result == SUCCESS ? copy(name, length, own) : result;
}

API int nvmlDeviceGetMinorNumber(nvmlDevice d, unsigned *minor)
{
	int result = check(d);
	if (result == SUCCESS && is_instance(d))
		return NOT_SUPPORTED;
	if (result == SUCCESS)
		*minor = (unsigned)gpu_minor(d->index, (int)gpus());
	return result;
}

API int nvmlDeviceGetIndex(nvmlDevice d, unsigned *index)
{
	int result = check(d);
	if (result == SUCCESS)
		*index = (unsigned)d->index;
	return result;
}


API int nvmlDeviceGetPciInfo_v3(nvmlDevice d, struct pci_info *info)
{
	int result = check(d);
	if (result != SUCCESS)
		return result;
	*info = (struct pci_info){.bus = (uint32_t)d->index + 1, .device_id = 0x20b010de, .subsystem_id = 0x145f10de};
	bus_id(d->index, info->bus_id, sizeof info->bus_id);
	strcpy(info->legacy, info->bus_id + 4);
	return SUCCESS;
}

API int nvmlDeviceGetMigMode(nvmlDevice d, unsigned *current, unsigned *pending)
{
	*current = *pending = 0;
	int result = check(d);
	if (result != SUCCESS)
		return result;
	*current = *pending = books->mig != 0;
	return books->mig && !is_instance(d) ? SUCCESS : NOT_SUPPORTED;
}

API int nvmlDeviceGetMaxMigDeviceCount(nvmlDevice d, unsigned *count)
{
	int result = check(d);
	*count = result == SUCCESS && books->mig && !is_instance(d) ? MIG_INSTANCES : 0;
	return result;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice d, unsigned index, nvmlDevice *instance)
{
	int result = check(d);
	if (result != SUCCESS)
		return result;
	if (!books->mig || is_instance(d))
		return NOT_SUPPORTED;
	if (index >= MIG_INSTANCES)
		return NOT_FOUND;
	*instance = &instances[d->first + (int)index];
	return SUCCESS;
}

API int nvmlDeviceIsMigDeviceHandle(nvmlDevice d, unsigned *is)
{
	int result = check(d);
	*is = result == SUCCESS && is_instance(d);
	return result;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice d, nvmlDevice *gpu)
{
	int result = check(d);
	if (result == SUCCESS && !is_instance(d))
		return INVALID_ARGUMENT;
	if (result == SUCCESS)
		*gpu = &handles[d->index / MIG_INSTANCES];
	return result;
}

static uint32_t instance_id(int of_books) { return books->mig ? (uint32_t)(of_books % MIG_INSTANCES + 1) : NO_INSTANCE; }

API int nvmlDeviceGetGpuInstanceId(nvmlDevice d, unsigned *id)
{
	int result = check(d);
	if (result == SUCCESS && !is_instance(d))
		return NOT_SUPPORTED;
	if (result == SUCCESS)
		*id = instance_id(d->first);
	return result;
}

API int nvmlDeviceGetComputeInstanceId(nvmlDevice d, unsigned *id)
{
	int result = nvmlDeviceGetGpuInstanceId(d, id);
	if (result == SUCCESS)
		*id = 0;
	return result;
}

static uint64_t used_by(int slot, int gpu)
{
	struct gpu_books *g = &books->process[slot].gpu[gpu];
	uint64_t bytes = g->context + g->reserved;
	return bytes && books_owner(books, fd, slot) ? bytes : 0;
}

static void memory(nvmlDevice d, struct memory_info *info)
{
	uint64_t used = 0;
	for (unsigned i = 0; i < books->high; i++)
		for (int g = d->first; g < d->first + d->count; g++)
			used += used_by((int)i, g);
	uint64_t total = books->capacity * (uint64_t)d->count;
	*info = (struct memory_info){total, used < total ? total - used : 0, used};
}

API int nvmlDeviceGetMemoryInfo(nvmlDevice d, struct memory_info *info)
{
	int result = check(d);
	if (result == SUCCESS)
		memory(d, info);
	if (result == SUCCESS && fault("sizes"))
		*info = (struct memory_info){~0ull, ~0ull, ~0ull};
	return result;
}

API int nvmlDeviceGetMemoryInfo_v2(nvmlDevice d, struct memory_info_v2 *info)
{
	int result = check(d);
	if (result != SUCCESS)
		return result;
	if (info->version != MEMORY_INFO_V2)
		return INVALID_ARGUMENT;
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
	int result = check(d);
	if (result != SUCCESS)
		return result;
	unsigned room = list ? *count : 0, n = 0;
	for (unsigned i = 0; i < books->high; i++)
		for (int g = d->first; g < d->first + d->count; g++) {
			uint64_t bytes = used_by((int)i, g);
			pid_t pid = bytes ? books_owner(books, fd, (int)i) : 0;
			if (!pid)
				continue;
			if (n < room)
				list[n] = (struct process_info){(uint32_t)pid, bytes, instance_id(g), books->mig ? 0 : NO_INSTANCE};
			n++;
		}
	*count = n;
	if (fault("counts") || fault("insatiable")) // more entries than fit, with a result of success or not
		*count = 0xfffffff0;
	if (fault("insatiable"))
		return INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < n && i < room; i++) {
		if (fault("pids"))
			list[i].pid = 0;
		if (fault("sizes"))
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

API int nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice d, unsigned link __attribute__((unused)), int *type __attribute__((unused)))
{
	int result = check(d);
	return result == SUCCESS ? NOT_SUPPORTED : result;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice d, unsigned link __attribute__((unused)), struct pci_info *info __attribute__((unused)))
{
	int result = check(d);
	return result == SUCCESS ? NOT_SUPPORTED : result;
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice d, unsigned *count, struct process_info *list __attribute__((unused)))
{
	*count = 0;
	return check(d);
}
