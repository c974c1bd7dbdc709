// SPDX-License-Identifier: Apache-2.0
// Memory that the processes of calls_c --random share. Each publishes some in files of a folder,
// under names that describe it, and opens that of others. Published memory stays until its process
// exits.
#include "calls_random.h"
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARED_MAX 4 // per thread
#define GPUS_MAX 16

static char uuid_of[GPUS_MAX]; // the last byte, by ordinal: processes may number the GPUs differently
static int gpus;

void share_begin(int count)
{
	int (*get)(unsigned char[16], int) = (int (*)(unsigned char[16], int))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDeviceGetUuid");
	unsigned char uuid[16];
	for (gpus = 0; gpus < count && gpus < GPUS_MAX; gpus++) {
		if (!get || get(uuid, gpus) != 0)
			die("cuDeviceGetUuid", "no UUID", gpus);
		uuid_of[gpus] = (char)uuid[15];
	}
}

static void publish(struct worker *w, char type, int device, uint64_t size, const void *handle, size_t length)
{
	static _Atomic int number;
	char temporary[256], path[256];
	int n = number++;
	snprintf(temporary, sizeof temporary, "%s/.%d-%d", w->folder, getpid(), n);
	snprintf(path, sizeof path, "%s/%d-%d-%c-%d-%llu", w->folder, getpid(), n, type, uuid_of[device], (unsigned long long)size);
	write_file(temporary, path, handle, length);
	if (rename(temporary, path) != 0)
		die(path, "cannot publish", 0);
	w->shared++;
}

void share_object(struct worker *w, uint64_t size)
{
	uint64_t address, handle[8] = {0}, properties[4] = {1 | 1ull << 32, 1 | (uint64_t)w->device << 32, 0, 0};
	char path[64];
	int fd = -1;
	bool runtime = below(w, 2);
	if (w->shared == SHARED_MAX)
		return;
	switch (below(w, 3)) {
	case 0:
		if (!ALLOCATE(runtime ? "cudaMalloc" : "cuMemAlloc_v2", &address, size, 0, 0, 0))
			return;
		MUST(below(w, 2) ? "cudaIpcGetMemHandle" : "cuIpcGetMemHandle", handle, address, 0, 0, 0);
		publish(w, 'm', w->device, size, handle, sizeof handle);
		return;
	case 1:
		if (!ALLOCATE(runtime ? "cudaMallocAsync" : "cuMemAllocAsync", &address, size, 0, 0, 0))
			return;
		MUST(below(w, 2) ? "cudaMemPoolExportPointer" : "cuMemPoolExportPointer", handle, address, 0, 0, 0);
		publish(w, 'p', w->device, size, handle, sizeof handle);
		return;
	}
	size = (1 + below(w, 4)) * PAGE;
	if (!ALLOCATE("cuMemCreate", &address, size, properties, 0, 0))
		return;
	MUST("cuMemExportToShareableHandle", &fd, address, 1, 0, 0);
	snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), fd);
	publish(w, 'v', w->device, size, path, strlen(path));
}

struct published {
	char path[512], type;
	int ordinal;
	uint64_t size;
};

// find_published selects one of the others' files.
static bool find_published(struct worker *w, struct published *found)
{
	DIR *folder = opendir(w->folder);
	int pid, uuid;
	unsigned seen = 0;
	unsigned long long size;
	char type;
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		if (sscanf(entry->d_name, "%d-%*d-%c-%d-%llu", &pid, &type, &uuid, &size) != 4 || pid == getpid() || below(w, ++seen))
			continue;
		snprintf(found->path, sizeof found->path, "%s/%s", w->folder, entry->d_name);
		found->type = type, found->size = size, found->ordinal = 0;
		while (found->ordinal < gpus && uuid_of[found->ordinal] != uuid)
			found->ordinal++;
	}
	if (folder)
		closedir(folder);
	return seen != 0;
}

static void open_physical(struct worker *w, struct object *o, const char *path)
{
	int fd = open_shared(path, path);
	uint64_t access[2] = {1 | (uint64_t)w->device << 32, 3};
	MUST("cuMemImportFromShareableHandle", &o->second, fd, 1, 0, 0);
	close(fd);
	MUST("cuMemAddressReserve", &o->address, o->size, 0, 0, 0);
	MUST("cuMemMap", o->address, o->size, 0, o->second, 0);
	MUST("cuMemSetAccess", o->address, o->size, access, 1, 0);
	o->third = below(w, 2);
	if (!o->third)
		MUST("cuMemRelease", o->second, 0, 0, 0, 0);
}

bool open_object(struct worker *w, struct object *o)
{
	static const char *const open[] = {"cudaIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle"};
	struct published p;
	uint64_t pool, handle[8];
	if (!find_published(w, &p))
		return false;
	w->device = p.ordinal;
	o->device = p.type, o->size = p.size;
	MUST("cudaSetDevice", w->device, 0, 0, 0, 0);
	if (p.type == 'v') {
		open_physical(w, o, p.path);
		return true;
	}
	read_file(p.path, p.path, handle, sizeof handle);
	if (p.type == 'm') {
		MUST(open[below(w, 3)], &o->address, handle, 1, 0, 0);
		return true;
	}
	MUST("cuDeviceGetMemPool", &pool, w->device, 0, 0, 0);
	MUST(o->runtime ? "cudaMemPoolImportPointer" : "cuMemPoolImportPointer", &o->address, pool, handle, 0, 0);
	return true;
}

void close_object(struct worker *w, struct object *o)
{
	static const char *const release[] = {"cudaFreeAsync", "cuMemFreeAsync_ptsz", "cudaFree", "cuMemFree_v2"};
	switch (o->device) {
	case 'm': MUST(o->runtime ? "cudaIpcCloseMemHandle" : "cuIpcCloseMemHandle", o->address, 0, 0, 0, 0); return;
	case 'p': MUST(release[below(w, 4)], o->address, 0, 0, 0, 0); return;
	}
	MUST("cuMemUnmap", o->address, o->size, 0, 0, 0);
	if (o->third)
		MUST("cuMemRelease", o->second, 0, 0, 0, 0);
	MUST("cuMemAddressFree", o->address, o->size, 0, 0, 0);
}
