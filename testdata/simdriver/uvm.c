// SPDX-License-Identifier: Apache-2.0
// The ioctls of /dev/nvidia-uvm: the GPU's address space. Managed memory stays where the program
// mapped it.
#include "sim.h"
#include "uvm_linux_ioctl.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CLASS_POOL = 0xfffe }; // ours: a semaphore pool

static void free_range(u64 base, u64 length)
{
	struct object *o = mapped_object(base);
	unmap_gpu(base, length);
	if (o && o->client == 0) // a pool or a managed range
		discard_object(o);
}

static void allocate_pool(UVM_ALLOC_SEMAPHORE_POOL_PARAMS *p)
{
	struct object *o = add_object(0, 0, new_handle(), CLASS_POOL);
	if (!give_memory(o, p->length)) {
		p->rmStatus = NV_ERR_NO_MEMORY;
		return;
	}
	syscall(SYS_mmap, p->base, p->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, o->memfd, 0);
	map_gpu(p->base, p->length, 0, o);
}

static void map_external(UVM_MAP_EXTERNAL_ALLOCATION_PARAMS *p)
{
	map_gpu(p->base, p->length, p->offset, find_object(p->hClient, p->hMemory));
}

static void create_group(UVM_CREATE_RANGE_GROUP_PARAMS *p)
{
	static u64 last;
	p->rangeGroupId = ++last;
}

// SUCCEED: a request that changes nothing here.
#define SUCCEED(request) case request: ((request##_PARAMS *)argument)->rmStatus = NV_OK; return true

static bool answer(unsigned long request, void *argument)
{
	switch (request) {
	case UVM_DEINITIALIZE: return true;
	SUCCEED(UVM_INITIALIZE);
	SUCCEED(UVM_MM_INITIALIZE);
	SUCCEED(UVM_UNREGISTER_GPU);
	SUCCEED(UVM_REGISTER_GPU_VASPACE);
	SUCCEED(UVM_UNREGISTER_GPU_VASPACE);
	SUCCEED(UVM_REGISTER_CHANNEL);
	SUCCEED(UVM_UNREGISTER_CHANNEL);
	SUCCEED(UVM_DESTROY_RANGE_GROUP);
	SUCCEED(UVM_SET_RANGE_GROUP);
	SUCCEED(UVM_CREATE_EXTERNAL_RANGE);
	SUCCEED(UVM_MAP_DYNAMIC_PARALLELISM_REGION);
	SUCCEED(UVM_VALIDATE_VA_RANGE);
	SUCCEED(UVM_ENABLE_PEER_ACCESS);
	SUCCEED(UVM_DISABLE_PEER_ACCESS);
	SUCCEED(UVM_SET_PREFERRED_LOCATION);
	SUCCEED(UVM_UNSET_PREFERRED_LOCATION);
	SUCCEED(UVM_SET_ACCESSED_BY);
	SUCCEED(UVM_UNSET_ACCESSED_BY);
	SUCCEED(UVM_MIGRATE);
	SUCCEED(UVM_MIGRATE_RANGE_GROUP);
	SUCCEED(UVM_ENABLE_READ_DUPLICATION);
	SUCCEED(UVM_DISABLE_READ_DUPLICATION);
	SUCCEED(UVM_ENABLE_SYSTEM_WIDE_ATOMICS);
	SUCCEED(UVM_DISABLE_SYSTEM_WIDE_ATOMICS);
	SUCCEED(UVM_MAP_EXTERNAL_SPARSE);
	SUCCEED(UVM_CLEAN_UP_ZOMBIE_RESOURCES);
	}
	return false;
}

static bool answer_with_effect(unsigned long request, void *argument)
{
#define TAKE(type) type##_PARAMS *p = argument; p->rmStatus = NV_OK
	switch (request) {
	case UVM_PAGEABLE_MEM_ACCESS: { TAKE(UVM_PAGEABLE_MEM_ACCESS); p->pageableMemAccess = 0; return true; }
	case UVM_PAGEABLE_MEM_ACCESS_ON_GPU: { TAKE(UVM_PAGEABLE_MEM_ACCESS_ON_GPU); p->pageableMemAccess = 0; return true; }
	case UVM_REGISTER_GPU: { TAKE(UVM_REGISTER_GPU); p->numaEnabled = 0; p->numaNodeId = -1; return true; }
	case UVM_CREATE_RANGE_GROUP: { TAKE(UVM_CREATE_RANGE_GROUP); create_group(p); return true; }
	case UVM_MAP_EXTERNAL_ALLOCATION: { TAKE(UVM_MAP_EXTERNAL_ALLOCATION); map_external(p); return true; }
	case UVM_UNMAP_EXTERNAL: { TAKE(UVM_UNMAP_EXTERNAL); unmap_gpu(p->base, p->length); return true; }
	case UVM_FREE: { TAKE(UVM_FREE); free_range(p->base, p->length); return true; }
	case UVM_ALLOC_SEMAPHORE_POOL: { TAKE(UVM_ALLOC_SEMAPHORE_POOL); allocate_pool(p); return true; }
	}
	return false;
}

int uvm_ioctl(unsigned long request, void *argument)
{
	bool known = answer(request, argument) || answer_with_effect(request, argument);
	sim_log("uvm %lu %s", request, uvm_name((u32)request));
	if (known)
		return 0;
	sim_unknown("uvm", (u32)request, uvm_name((u32)request));
	errno = EINVAL;
	return -1;
}
