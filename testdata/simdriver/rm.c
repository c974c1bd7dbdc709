// SPDX-License-Identifier: Apache-2.0
// The ioctls of /dev/nvidiactl and /dev/nvidiaN: the resource manager's interface.
#include "sim.h"
#include "nv-ioctl.h"
#include "nv_escape.h"
#include "nv-unix-nvos-params-wrappers.h"
#include "nvos.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef NV_ESC_WAIT_OPEN_COMPLETE // since 545
#define NV_ESC_WAIT_OPEN_COMPLETE (NV_IOCTL_BASE + 18)
#endif

enum {
	CLASS_ROOT = 0, CLASS_ROOT_NON_PRIVILEGED = 1, CLASS_ROOT_CLIENT = 0x41, CLASS_DEVICE = 0x80, CLASS_VIRTUAL_MEMORY = 0x70,
	ESCAPE_NUMA_INFO = NV_IOCTL_BASE + 15,
	DMA_FIXED = 1 << 15, // NVOS46_FLAGS_DMA_OFFSET_FIXED
};

// allocate_class gives a new object what its class needs.
NvU32 allocate_class(struct object *o, void *parameters)
{
	NV_MEMORY_ALLOCATION_PARAMS *p = parameters;
	switch (o->class) {
	case CLASS_LOCAL_MEMORY:
	case CLASS_SYSTEM_MEMORY:
	case CLASS_PRIVILEGED_MEMORY:
		o->size = p->size;
		if (o->class == CLASS_LOCAL_MEMORY && charge_object(o, p->attr))
			return NV_ERR_NO_MEMORY;
		// The driver returns the size in whole pages: seen on a real GPU with 580.159.
		o->size = p->size = o->charged ? o->charged : (p->size + 4095) & ~(u64)4095;
		if (!give_memory(o, p->size))
			return NV_ERR_NO_MEMORY;
		p->limit = p->size - 1;
		sim_log("  %#llx bytes of class %#x, attributes %#x: %#lx charged", p->size, o->class, p->attr, o->charged);
		return NV_OK;
	}
	if (is_channel_class(o->class)) {
		add_channel(o, parameters);
		start_channels();
	}
	return NV_OK;
}

static NvU32 allocate(u32 client, u32 parent, u32 *handle, u32 class, void *parameters)
{
	if (class == CLASS_ROOT || class == CLASS_ROOT_NON_PRIVILEGED || class == CLASS_ROOT_CLIENT) {
		if (parameters && *(u32 *)parameters)
			*handle = *(u32 *)parameters;
		if (!*handle)
			*handle = new_handle();
		if (parameters)
			*(u32 *)parameters = *handle;
		add_object(*handle, 0, *handle, class);
		return NV_OK;
	}
	if (!*handle)
		*handle = new_handle();
	struct object *o = add_object(client, parent, *handle, class);
	if (class == CLASS_DEVICE && parameters && *(u32 *)parameters < MAX_GPUS)
		o->gpu = *(u32 *)parameters; // NV0080_ALLOC_PARAMETERS.deviceId
	current_gpu = (int)o->gpu;
	NvU32 status = allocate_class(o, parameters);
	if (status)
		discard_object(o);
	return status;
}

static int rm_alloc(void *argument, u32 size)
{
	NVOS21_PARAMETERS *p = argument; // NVOS64 begins alike
	NvU32 status = allocate(p->hRoot, p->hObjectParent, &p->hObjectNew, p->hClass, (void *)p->pAllocParms);
	sim_log("alloc class %#x %s: handle %#x, status %#x", p->hClass, class_name(p->hClass), p->hObjectNew, status);
	if (size == sizeof(NVOS64_PARAMETERS))
		((NVOS64_PARAMETERS *)argument)->status = status;
	else
		p->status = status;
	return 0;
}

static int rm_free(void *argument)
{
	NVOS00_PARAMETERS *p = argument;
	struct object *o = find_object(p->hRoot, p->hObjectOld);
	sim_log("free class %#x, handle %#x", o ? o->class : 0, p->hObjectOld);
	free_objects(p->hRoot, p->hObjectOld);
	p->status = NV_OK;
	return 0;
}

static int rm_control(void *argument)
{
	NVOS54_PARAMETERS *p = argument;
	p->status = control(find_object(p->hClient, p->hObject), p->cmd, (void *)p->params, p->paramsSize);
	sim_log("control %#x %s: status %#x", p->cmd, control_name(p->cmd), p->status);
	return 0;
}

static int rm_share(void *argument)
{
	NVOS57_PARAMETERS *p = argument;
	struct object *o = find_object(p->hClient, p->hObject);
	if (o)
		publish(o);
	p->status = NV_OK;
	return 0;
}

// rm_dup_object duplicates an object of this process, or memory that another one shares. Only its
// first owner is charged.
static int rm_dup_object(void *argument)
{
	NVOS55_PARAMETERS *p = argument;
	struct object *source = find_object(p->hClientSrc, p->hObjectSrc), other;
	int memfd = source && source->memfd >= 0 ? (int)syscall(SYS_dup, source->memfd) : -1;
	if (!source && find_published(p->hClientSrc, p->hObjectSrc, &other)) {
		source = &other;
		memfd = other.memfd;
	}
	if (!source) {
		p->status = NV_ERR_INVALID_OBJECT_HANDLE;
		return 0;
	}
	if (!p->hObject)
		p->hObject = new_handle();
	struct object *o = add_object(p->hClient, p->hParent, p->hObject, source->class);
	if (memfd >= 0)
		share_memory(o, memfd, source->size);
	sim_log("duplicate class %#x as %#x", o->class, o->handle);
	p->status = NV_OK;
	return 0;
}

static int rm_map_memory(void *argument)
{
	nv_ioctl_nvos33_parameters_with_fd *with = argument;
	NVOS33_PARAMETERS *p = &with->params;
	struct object *o = find_object(p->hClient, p->hMemory);
	if (o && o->memfd < 0)
		give_memory(o, p->offset + p->length);
	if (with->fd >= 0 && with->fd < MAX_FDS) {
		files[with->fd].map = o;
		files[with->fd].map_offset = p->offset;
	}
	p->status = NV_OK;
	return 0;
}

// rm_alloc_memory makes memory of the host: pinned memory is the program's own.
static int rm_alloc_memory(void *argument)
{
	NVOS02_PARAMETERS *p = &((nv_ioctl_nvos02_parameters_with_fd *)argument)->params;
	if (!p->hObjectNew)
		p->hObjectNew = new_handle();
	struct object *o = add_object(p->hRoot, p->hObjectParent, p->hObjectNew, p->hClass);
	o->size = p->limit + 1;
	if (p->hClass == CLASS_OS_MEMORY)
		o->memory = (u8 *)p->pMemory;
	else
		give_memory(o, o->size);
	sim_log("alloc memory class %#x, %#lx bytes", p->hClass, o->size);
	p->status = NV_OK;
	return 0;
}

// rm_heap is how drivers up to 535 allocate memory.
static int rm_heap(void *argument)
{
	NVOS32_PARAMETERS *p = argument;
	p->total = heap_bytes();
	p->status = NV_OK;
	if (p->function == NVOS32_FUNCTION_ALLOC_SIZE) {
		__typeof__(p->data.AllocSize) *size = &p->data.AllocSize;
		u32 class = size->flags & NVOS32_ALLOC_FLAGS_VIRTUAL ? CLASS_VIRTUAL_MEMORY :
			(size->attr >> 25 & 3) == NVOS32_ATTR_LOCATION_VIDMEM ? CLASS_LOCAL_MEMORY : CLASS_SYSTEM_MEMORY;
		NV_MEMORY_ALLOCATION_PARAMS parameters = {.size = size->size, .attr = size->attr};
		p->status = allocate(p->hRoot, p->hObjectParent, &size->hMemory, class, &parameters);
		size->size = parameters.size;
		size->limit = size->size - 1;
		size->offset = 0;
	} else if (p->function != NVOS32_FUNCTION_INFO) {
		sim_unknown("heap function", p->function, "");
	}
	p->free = heap_bytes() - used_bytes(current_gpu);
	return 0;
}

static int rm_map_dma(void *argument)
{
	static u64 next = 16 << 20;
	NVOS46_PARAMETERS *p = argument;
	if (!(p->flags & DMA_FIXED)) {
		p->dmaOffset = next;
		next += (p->length + LARGE_PAGE - 1) & ~(u64)(LARGE_PAGE - 1);
	}
	map_gpu(p->dmaOffset, p->length, p->offset, find_object(p->hClient, p->hMemory));
	p->status = NV_OK;
	return 0;
}

static int rm_unmap_dma(void *argument)
{
	NVOS47_PARAMETERS *p = argument;
	unmap_gpu(p->dmaOffset, 0);
	p->status = NV_OK;
	return 0;
}

static int rm_event_data(int fd, void *argument)
{
	NVOS41_PARAMETERS *p = argument;
	u64 count;
	p->MoreEvents = 0;
	p->status = syscall(SYS_read, fd, &count, sizeof count) == sizeof count ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
	return 0;
}

static int rm_escape(int fd, u32 number, void *argument, u32 size)
{
	switch (number) {
	case NV_ESC_RM_ALLOC: return rm_alloc(argument, size);
	case NV_ESC_RM_FREE: return rm_free(argument);
	case NV_ESC_RM_CONTROL: return rm_control(argument);
	case NV_ESC_RM_SHARE: return rm_share(argument);
	case NV_ESC_RM_DUP_OBJECT: return rm_dup_object(argument);
	case NV_ESC_RM_MAP_MEMORY: return rm_map_memory(argument);
	case NV_ESC_RM_ALLOC_MEMORY: return rm_alloc_memory(argument);
	case NV_ESC_RM_VID_HEAP_CONTROL: return rm_heap(argument);
	case NV_ESC_RM_MAP_MEMORY_DMA: return rm_map_dma(argument);
	case NV_ESC_RM_UNMAP_MEMORY_DMA: return rm_unmap_dma(argument);
	case NV_ESC_RM_GET_EVENT_DATA: return rm_event_data(fd, argument);
	case NV_ESC_RM_UNMAP_MEMORY: ((NVOS34_PARAMETERS *)argument)->status = NV_OK; return 0;
	case NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO: ((NVOS56_PARAMETERS *)argument)->status = NV_OK; return 0;
	}
	sim_unknown("escape", number, "");
	errno = EINVAL;
	return -1;
}

static void card_info(void *argument, u32 size)
{
	nv_ioctl_card_info_t *card = argument;
	memset(argument, 0, size);
	for (int i = 0; i < gpu_count && (i + 1) * sizeof *card <= size; i++, card++)
		*card = (nv_ioctl_card_info_t){.valid = 1, .gpu_id = gpu_id(i), .interrupt_line = 10, .minor_number = i,
			.pci_info = {.bus = 1 + i, .vendor_id = 0x10de, .device_id = model->device},
			.reg_address = 0xfb000000, .reg_size = 16 << 20, .fb_address = 0x2000000000, .fb_size = 256 << 20};
}

static void check_version(nv_ioctl_rm_api_version_t *version)
{
	version->reply = NV_RM_API_VERSION_REPLY_RECOGNIZED;
	if (!version->versionString[0])
		snprintf(version->versionString, sizeof version->versionString, "%s", DRIVER_VERSION);
}

static void allocate_event(nv_ioctl_alloc_os_event_t *event)
{
	if (event->fd < MAX_FDS)
		files[event->fd].event = true;
	event->Status = NV_OK;
}

int rm_ioctl(int fd, unsigned long request, void *argument)
{
	u32 number = request & 0xff, size = request >> 16 & 0x3fff;
	if (number == NV_ESC_IOCTL_XFER_CMD) { // for parameters that are too large for a request's size
		nv_ioctl_xfer_t *transfer = argument;
		number = transfer->cmd;
		size = transfer->size;
		argument = (void *)transfer->ptr;
	}
	switch (number) {
	case NV_ESC_CHECK_VERSION_STR: check_version(argument); return 0;
	case NV_ESC_SYS_PARAMS: ((nv_ioctl_sys_params_t *)argument)->memblock_size = 0; return 0;
	case NV_ESC_CARD_INFO: card_info(argument, size); return 0;
	case NV_ESC_ALLOC_OS_EVENT: allocate_event(argument); return 0;
	case NV_ESC_FREE_OS_EVENT: ((nv_ioctl_free_os_event_t *)argument)->Status = NV_OK; return 0;
	case NV_ESC_STATUS_CODE: ((nv_ioctl_status_code_t *)argument)->status = NV_OK; return 0;
	case NV_ESC_ATTACH_GPUS_TO_FD:
	case NV_ESC_REGISTER_FD: return 0;
	case NV_ESC_WAIT_OPEN_COMPLETE:
	case NV_ESC_QUERY_DEVICE_INTR: memset(argument, 0, size); return 0;
	case ESCAPE_NUMA_INFO: memset(argument, 0, size); *(int *)argument = -1; return 0; // no NUMA node
	}
	return rm_escape(fd, number, argument, size);
}
