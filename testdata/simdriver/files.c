// SPDX-License-Identifier: Apache-2.0
// The driver's device files. An open one is an event descriptor: it can be polled as the real one
// can, and refuses ioctls that reach the kernel.
#include "sim.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CLASS_MANAGED = 0xffff }; // ours: a managed range

struct file files[MAX_FDS];

enum device device_at(const char *path)
{
	if (strncmp(path, "/dev/nvidia", 11))
		return NOT_OURS;
	path += 11;
	if (!strcmp(path, "ctl"))
		return CONTROL_DEVICE;
	if (!strcmp(path, "-uvm") || !strcmp(path, "-uvm-tools"))
		return UVM_DEVICE;
	return *path >= '0' && *path < '0' + gpu_count && !path[1] ? GPU_DEVICE : NOT_OURS;
}

int open_device(enum device device, int flags)
{
	int fd = eventfd(0, EFD_NONBLOCK | (flags & O_CLOEXEC ? EFD_CLOEXEC : 0));
	if (fd >= 0 && fd < MAX_FDS)
		files[fd] = (struct file){.device = device};
	return fd;
}

void close_device(int fd) { files[fd] = (struct file){0}; }

void forget_object(const struct object *o)
{
	for (int i = 0; i < MAX_FDS; i++)
		if (files[i].map == o)
			files[i].map = NULL;
}

void signal_events(void)
{
	u64 one = 1;
	for (int i = 0; i < MAX_FDS; i++)
		if (files[i].event && write(i, &one, sizeof one) < 0)
			files[i].event = false;
}

static void *map_fresh(void *at, size_t length, int protection, int flags)
{
	flags = (flags & ~MAP_TYPE) | MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
	return (void *)syscall(SYS_mmap, at, length, protection, flags, -1, 0);
}

// map_uvm maps a semaphore pool that UVM_ALLOC_SEMAPHORE_POOL made there, or a managed range, which
// the GPU sees at the same address.
static void *map_uvm(void *at, size_t length, int protection, int flags, int fd)
{
	struct object *pool = mapped_object((u64)at);
	if (pool && pool->client == 0 && pool->memfd >= 0)
		return (void *)syscall(SYS_mmap, at, length, protection, flags, pool->memfd, 0);
	void *p = map_fresh(at, length, protection, flags);
	if (p == MAP_FAILED)
		return p;
	struct object *o = add_object(0, 0, new_handle(), CLASS_MANAGED);
	o->memory = p;
	o->size = length;
	map_gpu((u64)p, length, 0, o);
	sim_log("map %#zx bytes of managed memory at %p (descriptor %d)", length, p, fd);
	return p;
}

// map_device maps what NV_ESC_RM_MAP_MEMORY chose. What has no object is a register page.
void *map_device(void *at, size_t length, int protection, int flags, int fd)
{
	struct file *f = &files[fd];
	if (f->device == UVM_DEVICE)
		return map_uvm(at, length, protection, flags, fd);
	if (!f->map || f->map->memfd < 0)
		return map_fresh(at, length, protection, flags);
	return (void *)syscall(SYS_mmap, at, length, protection, flags, f->map->memfd, f->map_offset & ~0xfffull);
}
