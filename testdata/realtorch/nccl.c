// SPDX-License-Identifier: Apache-2.0
// Communication that reaches nothing. A communicator takes device memory from the driver through
// the virtual memory functions, as NCCL does, bypassing PyTorch's allocator.
#include "../fakecuda/structures.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER ((size_t)12 << 20)
enum { SUCCESS = 0, SYSTEM_ERROR = 2 };

extern int cudaGetDevice(int *device);
extern int cudaSetDevice(int device);

struct communicator {
	int ranks, rank, device;
	uint64_t handle, address;
};

static void *driver(const char *name)
{
	static void *library;
	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW);
	return library ? dlsym(library, name) : NULL;
}
#define DRIVER(name, ...) ((int (*)(__VA_ARGS__))driver(#name))

static int take(struct communicator *c)
{
	struct properties p = {.type = 1, .location_type = 1};
	if (cudaGetDevice(&c->device) != 0 || cudaSetDevice(c->device) != 0) // creates a context
		return SYSTEM_ERROR;
	p.location = c->device;
	struct access access = {1, c->device, 3};
	if (DRIVER(cuMemCreate, uint64_t *, size_t, const struct properties *, unsigned long long)(&c->handle, BUFFER, &p, 0) != 0 ||
	    DRIVER(cuMemAddressReserve, uint64_t *, size_t, size_t, uint64_t, unsigned long long)(&c->address, BUFFER, 0, 0, 0) != 0 ||
	    DRIVER(cuMemMap, uint64_t, size_t, size_t, uint64_t, unsigned long long)(c->address, BUFFER, 0, c->handle, 0) != 0 ||
	    DRIVER(cuMemSetAccess, uint64_t, size_t, const struct access *, size_t)(c->address, BUFFER, &access, 1) != 0)
		return SYSTEM_ERROR;
	return SUCCESS;
}

struct id { // ncclUniqueId
	char bytes[128];
};

int ncclCommInitRank(struct communicator **out, int ranks, struct id id, int rank)
{
	(void)id;
	struct communicator *c = calloc(1, sizeof *c);
	if (!c)
		return SYSTEM_ERROR;
	c->ranks = ranks;
	c->rank = rank;
	int result = take(c);
	*out = c;
	return result;
}

int ncclCommInitRankConfig(struct communicator **out, int ranks, struct id id, int rank, void *config)
{
	(void)config;
	return ncclCommInitRank(out, ranks, id, rank);
}

int ncclCommDestroy(struct communicator *c)
{
	if (c && c->address) {
		DRIVER(cuMemUnmap, uint64_t, size_t)(c->address, BUFFER);
		DRIVER(cuMemRelease, uint64_t)(c->handle);
		DRIVER(cuMemAddressFree, uint64_t, size_t)(c->address, BUFFER);
	}
	free(c);
	return SUCCESS;
}

int ncclCommAbort(struct communicator *c) { return ncclCommDestroy(c); }

int ncclGetUniqueId(struct id *id)
{
	memset(id, 7, sizeof *id);
	return SUCCESS;
}

int ncclGetVersion(int *version)
{
	*version = 22203;
	return SUCCESS;
}

int ncclCommGetAsyncError(struct communicator *c, int *error)
{
	(void)c;
	*error = SUCCESS;
	return SUCCESS;
}

int ncclCommCount(struct communicator *c, int *ranks)
{
	*ranks = c->ranks;
	return SUCCESS;
}

int ncclCommUserRank(struct communicator *c, int *rank)
{
	*rank = c->rank;
	return SUCCESS;
}

const char *ncclGetErrorString(int code) { return code == SUCCESS ? "no error" : "unhandled system error"; }

const char *ncclGetLastError(struct communicator *c)
{
	(void)c;
	return "";
}
