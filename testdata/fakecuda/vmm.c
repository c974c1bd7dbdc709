// SPDX-License-Identifier: Apache-2.0
// The virtual memory API: physical memory lives until no handle refers to it and nothing maps it.
#define _GNU_SOURCE
#include "blocks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LOCATION_DEVICE = 1, LOCATION_LAST = 4, HANDLE_FD = 1 };
#define SHARED_MAGIC 0x6d6d765f656b6166ull

// What a PHYSICAL block represents.
struct physical {
	enum { OWN, HOST, MULTICAST, FOREIGN } what;
	int handle_types;
	int maps;
};

struct mapping {
	struct mapping *next;
	uint64_t address, size;
	struct block *memory;
};

struct range {
	struct range *next;
	uint64_t address, size;
	struct mapping *mappings;
};
static struct range *ranges;

// Content of the file behind a shareable handle.
struct shared {
	uint64_t magic, pid, start, handle, size;
	int slot, gpu;
};

// Physical memory belongs to the process; contexts do not free it.
static struct block *physical_add(int what, int gpu, uint64_t size, int handle_types)
{
	struct physical *p = calloc(1, sizeof *p);
	struct block *b = p ? block_add(PHYSICAL, 0, gpu, size, NULL) : NULL;
	if (!b) {
		free(p);
		return NULL;
	}
	p->what = what;
	p->handle_types = handle_types;
	b->detail = p;
	if (what == OWN)
		BOOK_IN(&self->gpu[gpu], vmm, size), b->charged = size;
	else if (what == HOST)
		BOOK_IN(self, vmm_host, size);
	else if (what == FOREIGN)
		BOOK_IN(&self->gpu[gpu], imported, size);
	return b;
}

void physical_refund(struct block *b)
{
	struct physical *p = b->detail;
	if (p->what == OWN)
		BOOK_OUT(&self->gpu[b->gpu], vmm, b->size);
	else if (p->what == HOST)
		BOOK_OUT(self, vmm_host, b->size);
	else if (p->what == FOREIGN)
		BOOK_OUT(&self->gpu[b->gpu], imported, b->size);
	free(p);
}

static void drop_unused(struct block *b)
{
	if (!b->references && !((struct physical *)b->detail)->maps)
		block_drop(b);
}

int impl_cuMemCreate(uint64_t *handle, size_t size, const struct properties *p, unsigned long long flags)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!handle || !p || flags || p->type != 1 || !size || size % GPU_PAGE || p->location_type < 1 || p->location_type > LOCATION_LAST)
		return INVALID_VALUE;
	bool host = p->location_type != LOCATION_DEVICE;
	int gpu = host ? 0 : visible_gpu(p->location);
	if (gpu < 0)
		return INVALID_DEVICE;
	if (size > 1ull << 45 || (!host && !charge(gpu, &self->gpu[gpu].reserved, size)))
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = physical_add(host ? HOST : OWN, gpu, size, p->handle_types);
	if (b)
		*handle = b->key;
	pthread_mutex_unlock(&blocks_lock);
	if (!b && !host)
		atomic_fetch_sub(&self->gpu[gpu].reserved, size);
	return b ? SUCCESS : OUT_OF_MEMORY;
}

int impl_cuMulticastCreate(uint64_t *handle, const struct multicast_properties *p)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!handle || !p || !p->devices || !p->size || p->size % GPU_PAGE)
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = physical_add(MULTICAST, 0, p->size, 0);
	if (b)
		*handle = b->key;
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : OUT_OF_MEMORY;
}

static struct block *referenced(uint64_t handle)
{
	struct block *b = block_find(handle, PHYSICAL);
	return b && b->references ? b : NULL;
}

int impl_cuMemRelease(uint64_t handle)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct block *b = referenced(handle);
	if (b) {
		b->references--;
		drop_unused(b);
	}
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : INVALID_VALUE;
}

static struct range *range_at(uint64_t address, uint64_t size)
{
	for (struct range *r = ranges; r; r = r->next)
		if (address >= r->address && size <= r->size && address - r->address <= r->size - size)
			return r;
	return NULL;
}

int vmm_gpu(uint64_t address)
{
	int gpu = -1;
	pthread_mutex_lock(&blocks_lock);
	struct range *r = range_at(address, 1);
	for (struct mapping *m = r ? r->mappings : NULL; m; m = m->next)
		if (address - m->address < m->size && ((struct physical *)m->memory->detail)->what != HOST)
			gpu = m->memory->gpu;
	pthread_mutex_unlock(&blocks_lock);
	return gpu;
}

int impl_cuMemRetainAllocationHandle(uint64_t *handle, void *pointer)
{
	if (!initialised)
		return NOT_INITIALIZED;
	int result = INVALID_VALUE;
	uint64_t address = (uint64_t)pointer;
	pthread_mutex_lock(&blocks_lock);
	struct range *r = handle ? range_at(address, 1) : NULL;
	for (struct mapping *m = r ? r->mappings : NULL; m; m = m->next)
		if (address - m->address < m->size) {
			m->memory->references++;
			*handle = m->memory->key;
			result = SUCCESS;
		}
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuMemAddressReserve(uint64_t *address, size_t size, size_t alignment, uint64_t hint UNUSED, unsigned long long flags)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!address || !size || size % GPU_PAGE || flags || alignment > GPU_PAGE)
		return INVALID_VALUE;
	struct range *r = calloc(1, sizeof *r);
	uint64_t at = r ? addresses_take(size) : 0;
	if (!at) {
		free(r);
		return OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&blocks_lock);
	*r = (struct range){ranges, at, size, NULL};
	ranges = r;
	*address = at;
	pthread_mutex_unlock(&blocks_lock);
	return SUCCESS;
}

int impl_cuMemAddressFree(uint64_t address, size_t size)
{
	if (!initialised)
		return NOT_INITIALIZED;
	int result = INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	for (struct range **at = &ranges; *at; at = &(*at)->next) {
		struct range *r = *at;
		if (r->address != address || r->size != size || r->mappings)
			continue;
		*at = r->next;
		addresses_give(address, size);
		free(r);
		result = SUCCESS;
		break;
	}
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

static int map(uint64_t address, uint64_t size, uint64_t offset, uint64_t handle)
{
	struct range *r = range_at(address, size);
	struct block *b = referenced(handle);
	if (!r || !b || offset > b->size || size > b->size - offset)
		return INVALID_VALUE;
	for (struct mapping *m = r->mappings; m; m = m->next)
		if (address < m->address + m->size && m->address < address + size)
			return ALREADY_MAPPED;
	struct mapping *m = calloc(1, sizeof *m);
	if (!m)
		return OUT_OF_MEMORY;
	*m = (struct mapping){r->mappings, address, size, b};
	r->mappings = m;
	((struct physical *)b->detail)->maps++;
	return SUCCESS;
}

int impl_cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, unsigned long long flags)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!size || size % GPU_PAGE || address % GPU_PAGE || offset % GPU_PAGE || flags)
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	int result = map(address, size, offset, handle);
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

static int unmap(struct range *r, uint64_t address, uint64_t size)
{
	uint64_t found = 0;
	for (struct mapping *m = r->mappings; m; m = m->next) {
		if (m->address + m->size <= address || m->address >= address + size)
			continue;
		if (m->address < address || m->address + m->size > address + size)
			return INVALID_VALUE; // a part of a mapping
		found++;
	}
	for (struct mapping **at = &r->mappings; *at;) {
		struct mapping *m = *at;
		if (m->address < address || m->address >= address + size) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		((struct physical *)m->memory->detail)->maps--;
		drop_unused(m->memory);
		free(m);
	}
	return found ? SUCCESS : INVALID_VALUE;
}

int impl_cuMemUnmap(uint64_t address, size_t size)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct range *r = size ? range_at(address, size) : NULL;
	int result = r ? unmap(r, address, size) : INVALID_VALUE;
	pthread_mutex_unlock(&blocks_lock);
	return result;
}

int impl_cuMemSetAccess(uint64_t address, size_t size, const struct access *list, size_t count)
{
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&blocks_lock);
	struct range *r = list && count && size ? range_at(address, size) : NULL;
	bool mapped = r && r->mappings;
	pthread_mutex_unlock(&blocks_lock);
	return mapped ? SUCCESS : INVALID_VALUE;
}

int impl_cuMemGetAllocationGranularity(size_t *granularity, const struct properties *p, int option UNUSED)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!granularity || !p)
		return INVALID_VALUE;
	*granularity = GPU_PAGE;
	return SUCCESS;
}

// The handle is the descriptor of a file that describes the memory. How it reaches another process
// is up to the program, as with the real driver.
int impl_cuMemExportToShareableHandle(void *out, uint64_t handle, int type, unsigned long long flags)
{
	if (!initialised)
		return NOT_INITIALIZED;
	struct shared s = {SHARED_MAGIC, self->pid, self->start, handle, 0, own_slot(), 0};
	pthread_mutex_lock(&blocks_lock);
	struct block *b = out && !flags && type == HANDLE_FD ? referenced(handle) : NULL;
	if (b && !(((struct physical *)b->detail)->handle_types & HANDLE_FD))
		b = NULL;
	if (b)
		s.size = b->size, s.gpu = b->gpu;
	pthread_mutex_unlock(&blocks_lock);
	if (!b)
		return INVALID_VALUE;
	int fd = memfd_create("fakecuda-shared", MFD_CLOEXEC);
	if (fd < 0 || write(fd, &s, sizeof s) != sizeof s) {
		if (fd >= 0)
			close(fd);
		return OUT_OF_MEMORY;
	}
	*(int *)out = fd;
	return SUCCESS;
}

int impl_cuMemImportFromShareableHandle(uint64_t *handle, void *shared, int type)
{
	if (!initialised)
		return NOT_INITIALIZED;
	struct shared s;
	if (!handle || type != HANDLE_FD || pread((int)(intptr_t)shared, &s, sizeof s, 0) != sizeof s || s.magic != SHARED_MAGIC ||
	    s.gpu < 0 || s.gpu >= MAX_GPUS || !slot_alive(s.slot, s.pid, s.start))
		return INVALID_VALUE;
	pthread_mutex_lock(&blocks_lock);
	// The process's own memory keeps its handle, with one more reference.
	bool own = s.slot == own_slot();
	struct block *b = own ? referenced(s.handle) : physical_add(FOREIGN, s.gpu, s.size, HANDLE_FD);
	if (b && own)
		b->references++;
	if (b)
		*handle = b->key;
	pthread_mutex_unlock(&blocks_lock);
	return b ? SUCCESS : INVALID_VALUE;
}
