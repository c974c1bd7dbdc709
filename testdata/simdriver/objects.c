// SPDX-License-Identifier: Apache-2.0
// The objects of the resource manager by client and handle, their memory, and where it is mapped in
// the GPU's address space. Memory is a memfd, so libcuda can map it and other processes can open it.
#include "sim.h"
#include "nvos.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct mapping {
	struct mapping *next;
	u64 address, length, offset;
	struct object *object;
};

int current_gpu;
static struct object *objects;
static struct mapping *mappings;

static u64 whole_pages(u64 size) { return (size + LARGE_PAGE - 1) & ~(u64)(LARGE_PAGE - 1); }

struct object *find_object(u32 client, u32 handle)
{
	for (struct object *o = objects; o; o = o->next)
		if (o->client == client && o->handle == handle)
			return o;
	return NULL;
}

// add_object puts the object on the GPU of its parent.
struct object *add_object(u32 client, u32 parent, u32 handle, u32 class)
{
	struct object *above = find_object(client, parent), *o = calloc(1, sizeof *o);
	*o = (struct object){.next = objects, .client = client, .parent = parent, .handle = handle, .class = class,
		.gpu = above ? above->gpu : 0, .memfd = -1};
	return objects = o;
}

// new_handle returns handles that no other process uses: clients of other processes may name them.
u32 new_handle(void)
{
	static u32 next;
	static pid_t owner;
	if (owner != getpid()) {
		owner = getpid();
		next = 0xc0000000u | (owner & 0x3fffff) << 8;
	}
	return ++next;
}

static void map_memory(struct object *o)
{
	long at = syscall(SYS_mmap, NULL, whole_pages(o->size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, o->memfd, 0);
	o->memory = at == -1 ? NULL : (u8 *)at;
}

bool give_memory(struct object *o, u64 size)
{
	o->size = size;
	o->memfd = (int)syscall(SYS_memfd_create, "simdriver", 1u /* MFD_CLOEXEC */);
	if (o->memfd < 0 || ftruncate(o->memfd, (off_t)whole_pages(size))) {
		sim_log("no memory for %#lx bytes", size);
		return false;
	}
	map_memory(o);
	return o->memory;
}

bool share_memory(struct object *o, int memfd, u64 size)
{
	o->size = size;
	o->memfd = memfd;
	map_memory(o);
	return o->memory;
}

// charge_object books an object's memory, rounded up to the pages that the open kernel module would
// choose: 2 MiB from 2 MiB on, otherwise 64 KiB, unless the caller asks for a size.
NvU32 charge_object(struct object *o, u32 attributes)
{
	u32 asked = attributes >> 23 & 3; // NVOS32_ATTR_PAGE_SIZE
	u64 page = asked == NVOS32_ATTR_PAGE_SIZE_4KB ? 4096 : asked == NVOS32_ATTR_PAGE_SIZE_BIG || o->size < LARGE_PAGE ? 65536 : LARGE_PAGE;
	u64 bytes = (o->size + page - 1) & ~(page - 1);
	if (!charge(o->gpu, (int64_t)bytes))
		return NV_ERR_NO_MEMORY;
	o->charged = bytes;
	return NV_OK;
}

static void release_memory(struct object *o)
{
	if (o->published)
		unpublish(o);
	if (o->charged)
		charge(o->gpu, -(int64_t)o->charged);
	if (o->memfd >= 0)
		syscall(SYS_close, o->memfd);
	if (o->memfd >= 0 && o->memory)
		syscall(SYS_munmap, o->memory, whole_pages(o->size));
}

static void remove_object(struct object *o)
{
	struct object **at = &objects;
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->object == o)
			m->object = NULL;
	forget_object(o);
	forget_channel(o);
	release_memory(o);
	free(o);
}

void discard_object(struct object *o) { remove_object(o); }

static struct object *below(u32 client, u32 handle)
{
	for (struct object *o = objects; o; o = o->next)
		if (o->client == client && o->parent == handle && o->handle != handle)
			return o;
	return NULL;
}

static struct object *of_client(u32 client)
{
	for (struct object *o = objects; o; o = o->next)
		if (o->client == client)
			return o;
	return NULL;
}

void free_objects(u32 client, u32 handle)
{
	struct object *o;
	if (client == handle) {
		while ((o = of_client(client)))
			remove_object(o);
		return;
	}
	while ((o = below(client, handle)))
		free_objects(client, o->handle);
	if ((o = find_object(client, handle)))
		remove_object(o);
}

// forget_all_objects leaves the parent's objects to the parent, in a forked child.
void forget_all_objects(void)
{
	objects = NULL;
	mappings = NULL;
}

void map_gpu(u64 address, u64 length, u64 offset, struct object *o)
{
	struct mapping *m = calloc(1, sizeof *m);
	*m = (struct mapping){mappings, address, length, offset, o};
	mappings = m;
}

void unmap_gpu(u64 address, u64 length)
{
	for (struct mapping **at = &mappings; *at;) {
		struct mapping *m = *at;
		if (length ? m->address >= address && m->address < address + length : m->address == address) {
			*at = m->next;
			free(m);
		} else {
			at = &m->next;
		}
	}
}

struct object *mapped_object(u64 address)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->address == address && m->object)
			return m->object;
	return NULL;
}

u8 *gpu_pointer(u64 address, u64 *room)
{
	for (struct mapping *m = mappings; m; m = m->next) {
		if (address < m->address || address >= m->address + m->length || !m->object || !m->object->memory)
			continue;
		if (room)
			*room = m->address + m->length - address;
		return m->object->memory + m->offset + (address - m->address);
	}
	return NULL;
}
