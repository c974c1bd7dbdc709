// SPDX-License-Identifier: Apache-2.0
// Which GPUs a process of the fake libcuda.so.1 can open, how it numbers them, and its open device
// nodes.
#define _GNU_SOURCE
#include "driver.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { NVIDIA_MAJOR = 195 };

static int given[MAX_GPUS], given_count; // NVML's numbers, in CUDA's order
static int visible[MAX_GPUS], visible_count; // numbers in the books

static int each(void) { return books->mig ? MIG_INSTANCES : 1; } // a GPU's number means its first instance

static bool listed(const int *list, int count, int gpu)
{
	for (int i = 0; i < count; i++)
		if (list[i] == gpu)
			return true;
	return false;
}

// read_list parses "3,1,2". NULL means all GPUs. It skips GPUs that the machine lacks.
static int read_list(const char *text, int *list)
{
	int count = 0, gpus = (int)books->gpus / each();
	for (int i = 0; !text && i < gpus; i++)
		list[count++] = i;
	while (text && *text && count < MAX_GPUS) {
		char *end;
		long gpu = strtol(text, &end, 10);
		if (end != text && gpu >= 0 && gpu < gpus)
			list[count++] = (int)gpu;
		text = *end ? end + 1 : end;
	}
	return count;
}

static void read_given(void)
{
	int order[MAX_GPUS], some[MAX_GPUS];
	const char *by = getenv("CUDA_DEVICE_ORDER");
	int ordered = read_list(by && !strcmp(by, "PCI_BUS_ID") ? NULL : getenv("FAKECUDA_ORDER"), order);
	int count = read_list(getenv("FAKECUDA_GIVEN"), some);
	given_count = 0;
	for (int i = 0; i < ordered; i++)
		if (listed(some, count, order[i]))
			given[given_count++] = order[i];
}

static bool add_visible(const char *word, size_t length)
{
	char *end, uuid[41];
	long index = strtol(word, &end, 10);
	int gpu = -1;
	if (length && end == word + length && index >= 0 && index < given_count)
		gpu = given[index] * each();
	for (int i = 0; gpu < 0 && length > 4 && i < (int)books->gpus; i++) {
		gpu_uuid_text(i, uuid);
		if (listed(given, given_count, i) && length < sizeof uuid && strncasecmp(uuid, word, length) == 0)
			gpu = i * each();
		mig_uuid_text(i, uuid);
		if (books->mig && length < sizeof uuid && strncasecmp(uuid, word, length) == 0)
			gpu = i;
	}
	if (gpu < 0)
		return false;
	visible[visible_count++] = gpu;
	return true;
}

// read_visible_gpus applies CUDA_VISIBLE_DEVICES: the first invalid entry hides all after it, and a
// process sees at most one MIG instance.
void read_visible_gpus(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	int most = books->mig ? 1 : MAX_GPUS;
	read_given();
	visible_count = 0;
	if (!list) {
		for (int i = 0; i < given_count && visible_count < most; i++)
			visible[visible_count++] = given[i] * each();
		return;
	}
	while (visible_count < most) {
		size_t length = strcspn(list, ",");
		if (!add_visible(list, length) || !list[length])
			return;
		list += length + 1;
	}
}

int visible_gpu(int ordinal) { return ordinal >= 0 && ordinal < visible_count ? visible[ordinal] : -1; }

int visible_gpus(void) { return visible_count; }

// hold_nodes keeps a device node open for each GPU, as the real driver does. Without permission to
// create nodes, there are none. Opened with O_PATH, they need no driver, and they disappear with
// the process.
void hold_nodes(void)
{
	char folder[] = "/tmp/fakecuda-XXXXXX", path[64];
	if (environment_bytes("FAKECUDA_NODES", 1) == 0 || !mkdtemp(folder))
		return;
	for (int i = 0; i < given_count; i++) {
		int minor = gpu_minor(given[i], (int)books->gpus / each());
		snprintf(path, sizeof path, "%s/nvidia%d", folder, minor);
		if (mknod(path, S_IFCHR | 0600, makedev(NVIDIA_MAJOR, (unsigned)minor)) == 0) {
			(void)!open(path, O_PATH | O_CLOEXEC);
			unlink(path);
		}
	}
	rmdir(folder);
}
