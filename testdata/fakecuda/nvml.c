// SPDX-License-Identifier: Apache-2.0
// The fake libnvidia-ml.so.1: reports the books of the simulated machine.
#define _GNU_SOURCE
#include "nvml.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

static struct handle handles[MAX_GPUS], instances[MAX_GPUS];
struct books *nvml_books;
int nvml_fd;
static int references;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// nvml_fault reports whether the file named by FAKECUDA_NVML_FAULTS contains a word now.
bool nvml_fault(const char *word)
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
	while (nvml_fault(word))
		usleep(10000);
}

static unsigned gpus(void) { return (unsigned)nvml_books->gpus / (nvml_books->mig ? MIG_INSTANCES : 1); }

static bool is_instance(nvmlDevice d) { return nvml_books->mig && d >= instances && d < instances + nvml_books->gpus; }

int nvml_check(nvmlDevice d)
{
	hang("hang");
	if (nvml_fault("unloaded"))
		references = 0;
	if (!references)
		return UNINITIALIZED;
	if (nvml_fault("lost"))
		return GPU_IS_LOST;
	return is_instance(d) || (d >= handles && d < handles + gpus()) ? SUCCESS : INVALID_ARGUMENT;
}

static int copy(char *out, unsigned length, const char *text)
{
	if (strlen(text) >= length)
		return INSUFFICIENT_SIZE;
	strcpy(out, text);
	if (nvml_fault("strings")) { // unterminated strings that would affect a terminal
		memset(out, 'x', length);
		memcpy(out, "\033[31m\377", 6);
	}
	return SUCCESS;
}

static void bus_id(int index, char *text, size_t length) { snprintf(text, length, "%08X:%02X:00.0", 0, index + 1); }

static int log_fd = -1;

// log_line appends a line to FAKECUDA_NVML_LOG, which is open while NVML is initialized.
static void log_line(const char *line)
{
	const char *path = getenv("FAKECUDA_NVML_LOG");
	if (path && log_fd < 0)
		log_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (log_fd >= 0 && write(log_fd, line, strlen(line)) < 0)
		perror("FAKECUDA_NVML_LOG");
	if (!references) {
		close(log_fd);
		log_fd = -1;
	}
}

// The file of the books stays open after nvmlShutdown: closing it would release libcuda's lock in this process.
API int nvmlInit_v2(void)
{
	hang("hang-init");
	if (nvml_fault("unloaded"))
		return DRIVER_NOT_LOADED;
	if (nvml_fault("mismatch"))
		return LIB_RM_VERSION_MISMATCH;
	if (nvml_fault("forbidden"))
		return NO_PERMISSION;
	if (nvml_fault("no-gpu"))
		return NOT_FOUND;
	pthread_mutex_lock(&lock);
	if (!nvml_books)
		nvml_books = books_open(&nvml_fd);
	if (nvml_books) {
		references++;
		log_line("init\n");
	}
	for (int i = 0; nvml_books && i < MAX_GPUS; i++) {
		int each = nvml_books->mig ? MIG_INSTANCES : 1;
		handles[i] = (struct handle){i, i * each, each};
		instances[i] = (struct handle){i, i, 1};
	}
	pthread_mutex_unlock(&lock);
	return nvml_books ? SUCCESS : UNKNOWN;
}

API int nvmlInit(void) { return nvmlInit_v2(); }

API int nvmlShutdown(void)
{
	hang("hang-end");
	pthread_mutex_lock(&lock);
	int result = references ? SUCCESS : UNINITIALIZED;
	if (references) {
		references--;
		log_line("shutdown\n");
	}
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
	if (nvml_fault("unloaded"))
		references = 0;
	if (!references)
		return UNINITIALIZED;
	*count = nvml_fault("one") ? 1 : nvml_fault("many") ? 0xfffffff0 : gpus();
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
	for (unsigned i = 0; references && nvml_books->mig && i < nvml_books->gpus; i++) {
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
	int result = nvml_check(d);
	if (result != SUCCESS)
		return result;
	(is_instance(d) ? mig_uuid_text : gpu_uuid_text)(d->index, own);
	return copy(uuid, length, own);
}

API int nvmlDeviceGetName(nvmlDevice d, char *name, unsigned length)
{
	int result = nvml_check(d);
	char own[32] = "Fake GPU";
	if (getenv("FAKECUDA_ORDER")) // of different models
		snprintf(own, sizeof own, "Fake GPU %c", 'A' + (is_instance(d) ? d->index / MIG_INSTANCES : d->index));
	return result == SUCCESS ? copy(name, length, own) : result;
}

API int nvmlDeviceGetMinorNumber(nvmlDevice d, unsigned *minor)
{
	int result = nvml_check(d);
	if (result == SUCCESS && is_instance(d))
		return NOT_SUPPORTED;
	if (result == SUCCESS)
		*minor = (unsigned)gpu_minor(d->index, (int)gpus());
	return result;
}

API int nvmlDeviceGetIndex(nvmlDevice d, unsigned *index)
{
	int result = nvml_check(d);
	if (result == SUCCESS)
		*index = (unsigned)d->index;
	return result;
}


API int nvmlDeviceGetPciInfo_v3(nvmlDevice d, struct pci_info *info)
{
	int result = nvml_check(d);
	if (result != SUCCESS)
		return result;
	*info = (struct pci_info){.bus = (uint32_t)d->index + 1, .device_id = 0x20b010de, .subsystem_id = 0x145f10de};
	bus_id(d->index, info->bus_id, sizeof info->bus_id);
	strcpy(info->legacy, info->bus_id + 4);
	return SUCCESS;
}

// As on a superchip such as GH200, where each GPU is a NUMA node: GPU n is node FAKECUDA_NODE + n.
API int nvmlDeviceGetNumaNodeId(nvmlDevice d, unsigned *node)
{
	const char *text = getenv("FAKECUDA_NODE");
	int result = nvml_check(d);
	if (result == SUCCESS && (!text || !*text))
		return NOT_SUPPORTED;
	if (result == SUCCESS)
		*node = (unsigned)(atoi(text) + d->index);
	return result;
}

API int nvmlDeviceGetAddressingMode(nvmlDevice d, struct addressing_mode *mode)
{
	const char *text = getenv("FAKECUDA_ADDRESSING");
	int result = nvml_check(d);
	if (result == SUCCESS && mode->version != ADDRESSING_MODE_V1)
		return INVALID_ARGUMENT;
	if (result == SUCCESS && (!text || !*text))
		return NOT_SUPPORTED;
	if (result == SUCCESS)
		mode->value = !strcmp(text, "ATS") ? 2 : !strcmp(text, "HMM") ? 1 : 0;
	return result;
}

API int nvmlDeviceGetMigMode(nvmlDevice d, unsigned *current, unsigned *pending)
{
	*current = *pending = 0;
	int result = nvml_check(d);
	if (result != SUCCESS)
		return result;
	*current = *pending = nvml_books->mig != 0;
	return nvml_books->mig && !is_instance(d) ? SUCCESS : NOT_SUPPORTED;
}

API int nvmlDeviceGetMaxMigDeviceCount(nvmlDevice d, unsigned *count)
{
	int result = nvml_check(d);
	*count = result == SUCCESS && nvml_books->mig && !is_instance(d) ? MIG_INSTANCES : 0;
	return result;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice d, unsigned index, nvmlDevice *instance)
{
	int result = nvml_check(d);
	if (result != SUCCESS)
		return result;
	if (!nvml_books->mig || is_instance(d))
		return NOT_SUPPORTED;
	if (index >= MIG_INSTANCES)
		return NOT_FOUND;
	*instance = &instances[d->first + (int)index];
	return SUCCESS;
}

API int nvmlDeviceIsMigDeviceHandle(nvmlDevice d, unsigned *is)
{
	int result = nvml_check(d);
	*is = result == SUCCESS && is_instance(d);
	return result;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice d, nvmlDevice *gpu)
{
	int result = nvml_check(d);
	if (result == SUCCESS && !is_instance(d))
		return INVALID_ARGUMENT;
	if (result == SUCCESS)
		*gpu = &handles[d->index / MIG_INSTANCES];
	return result;
}

uint32_t nvml_instance_id(int of_books) { return nvml_books->mig ? (uint32_t)(of_books % MIG_INSTANCES + 1) : NO_INSTANCE; }

API int nvmlDeviceGetGpuInstanceId(nvmlDevice d, unsigned *id)
{
	int result = nvml_check(d);
	if (result == SUCCESS && !is_instance(d))
		return NOT_SUPPORTED;
	if (result == SUCCESS)
		*id = nvml_instance_id(d->first);
	return result;
}

API int nvmlDeviceGetComputeInstanceId(nvmlDevice d, unsigned *id)
{
	int result = nvmlDeviceGetGpuInstanceId(d, id);
	if (result == SUCCESS)
		*id = 0;
	return result;
}

API int nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice d, unsigned link __attribute__((unused)), int *type __attribute__((unused)))
{
	int result = nvml_check(d);
	return result == SUCCESS ? NOT_SUPPORTED : result;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice d, unsigned link __attribute__((unused)), struct pci_info *info __attribute__((unused)))
{
	int result = nvml_check(d);
	return result == SUCCESS ? NOT_SUPPORTED : result;
}
