// SPDX-License-Identifier: Apache-2.0
// Controls of devices and subdevices: what a GPU is, its memory, and who uses it.
#include "sim.h"
#include "ctrl/ctrl0000/ctrl0000client.h"
#include "ctrl/ctrl0041.h"
#include "ctrl/ctrl0080.h"
#include "ctrl/ctrl2080.h"
#include "ctrl/ctrl83de.h"
#include "ctrl/ctrlcb33.h"
#include "nvos.h"
#include <stdio.h>
#include <string.h>

void gpu_uuid(int gpu, u8 *uuid)
{
	static const u8 first[UUID_BYTES] = {0x52, 0x4d, 0x53, 0x49, 0x4d, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 1};
	memcpy(uuid, first, UUID_BYTES);
	uuid[UUID_BYTES - 1] += gpu;
}

ANSWER(class_list, NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS)
{
	UNUSED;
	if (p->classList)
		memcpy((void *)p->classList, model->classes, class_count() * sizeof(u32));
	p->numClasses = class_count();
	return NV_OK;
}

ANSWER(class_list_2, NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS)
{
	UNUSED;
	memcpy(p->classList, model->classes, class_count() * sizeof(u32));
	p->numClasses = class_count();
	return NV_OK;
}

ANSWER(one, u32)
{
	UNUSED;
	*p = 1;
	return NV_OK;
}

ANSWER(all_zero, u8)
{
	UNUSED;
	memset(p, 0, size);
	return NV_OK;
}

ANSWER(name_string, NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS)
{
	UNUSED;
	strcpy((char *)p->gpuNameString.ascii, model->name);
	return NV_OK;
}

ANSWER(short_name, char)
{
	UNUSED;
	strcpy(p, model->chip);
	return NV_OK;
}

// Lists of figures come in two shapes: behind the count, or where a pointer shows.
struct list { u32 count; struct info infos[]; };
ANSWER(gpu_infos, struct info_list) { UNUSED; fill_infos(p->infos, p->count, gpu_info); return NV_OK; }
ANSWER(memory_infos, struct info_list) { UNUSED; fill_infos(p->infos, p->count, memory_info); return NV_OK; }
ANSWER(bus_infos, struct info_list) { UNUSED; fill_infos(p->infos, p->count, bus_info); return NV_OK; }
ANSWER(gpu_infos_at, struct info_pointer) { UNUSED; fill_infos(p->infos, p->count, gpu_info); return NV_OK; }
ANSWER(memory_infos_at, struct info_pointer) { UNUSED; fill_infos(p->infos, p->count, memory_info); return NV_OK; }
ANSWER(bus_infos_at, struct info_pointer) { UNUSED; fill_infos(p->infos, p->count, bus_info); return NV_OK; }

ANSWER(architecture, NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS)
{
	UNUSED;
	p->architecture = model->architecture;
	p->implementation = model->implementation;
	p->revision = 0xa1;
	p->subRevision = 0;
	return NV_OK;
}

ANSWER(uuid, NV2080_CTRL_GPU_GET_GID_INFO_PARAMS)
{
	UNUSED;
	u8 u[UUID_BYTES];
	gpu_uuid(current_gpu, u);
	if ((p->flags & 3) == 2) { // NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY
		p->length = UUID_BYTES;
		memcpy(p->data, u, UUID_BYTES);
		return NV_OK;
	}
	int n = sprintf((char *)p->data, "GPU-");
	for (int i = 0; i < UUID_BYTES; i++)
		n += sprintf((char *)p->data + n, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
	p->length = n + 1;
	return NV_OK;
}

ANSWER(pci_info, NV2080_CTRL_BUS_GET_PCI_INFO_PARAMS)
{
	UNUSED;
	p->pciDeviceId = model->device << 16 | 0x10de;
	p->pciSubSystemId = model->subsystem;
	p->pciRevisionId = 0xa1;
	p->pciExtDeviceId = 0;
	return NV_OK;
}

ANSWER(bars, NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS)
{
	UNUSED;
	static const u64 at[] = {0xfb000000, 0x2000000000, 0x2010000000}, bytes[] = {16 << 20, 256 << 20, 32 << 20};
	memset(p, 0, size);
	p->pciBarCount = COUNT(at);
	for (size_t i = 0; i < COUNT(at); i++) {
		p->pciBarInfo[i].barSize = bytes[i] >> 20;
		p->pciBarInfo[i].barSizeBytes = bytes[i];
		p->pciBarInfo[i].barOffset = at[i];
	}
	return NV_OK;
}

ANSWER(host_caps, u8)
{
	UNUSED;
	memset(p, 0, size);
	p[0] = 4; // coherent mappings
	return NV_OK;
}

ANSWER(memory_caps, u8)
{
	UNUSED;
	memset(p, 0, size);
	p[0] = 0x0b;
	p[1] = 0x80;
	return NV_OK;
}

ANSWER(dma_caps, NV0080_CTRL_DMA_GET_CAPS_PARAMS)
{
	UNUSED;
	p->capsTblSize = 8;
	p->capsTbl[0] = 0x1c;
	return NV_OK;
}

ANSWER(address_caps, NV0080_CTRL_DMA_ADV_SCHED_GET_VA_CAPS_PARAMS)
{
	UNUSED;
	p->vaBitCount = 49;
	p->pdeCoverageBitCount = 29;
	p->num4KPageTableFormats = 1;
	p->bigPageSize = p->compressionPageSize = 65536;
	p->dualPageTableSupported = 1;
	p->idealVRAMPageSize = LARGE_PAGE;
	p->pageTableBigFormat.pageTableSize = p->pageTable4KFormat[0].pageTableSize = 1 << 12;
	p->pageTableBigFormat.pageTableCoverage = p->pageTable4KFormat[0].pageTableCoverage = 21;
	p->vaSpaceId = 0;
	p->supportedPageSizeMask = LARGE_PAGE | 65536 | 4096;
	return NV_OK;
}

// surface_infos gives the size and the place of memory.
ANSWER(surface_infos, struct info_pointer)
{
	UNUSED;
	for (u32 i = 0; o && i < p->count; i++) {
		u32 *value = &p->infos[i].value;
		switch (p->infos[i].index) {
		case NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_SIZE: *value = (u32)(o->size / NV0041_CTRL_SURFACE_INFO_PHYS_SIZE_SCALE_FACTOR); break;
		case NV0041_CTRL_SURFACE_INFO_INDEX_ATTRS: *value = 0; break; // not compressed
		case NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_ATTR: *value = NVOS32_ATTR_PAGE_SIZE_HUGE << 23; break;
		case NV0041_CTRL_SURFACE_INFO_INDEX_ADDR_SPACE_TYPE: *value = NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_VIDMEM; break;
		default:
			*value = 0;
			sim_unknown("surface info", p->infos[i].index, "");
		}
	}
	return NV_OK;
}

ANSWER(pids, NV2080_CTRL_GPU_GET_PIDS_PARAMS)
{
	UNUSED;
	p->pidTblCount = pids_on(current_gpu, p->pidTbl, COUNT(p->pidTbl));
	return NV_OK;
}

// pid_info gives the bytes that a process holds, which NVML reports.
ANSWER(pid_info, NV2080_CTRL_GPU_GET_PID_INFO_PARAMS)
{
	UNUSED;
	for (u32 i = 0; i < p->pidInfoListCount && i < COUNT(p->pidInfoList); i++) {
		NV2080_CTRL_GPU_PID_INFO *info = &p->pidInfoList[i];
		memset(&info->data, 0, sizeof info->data);
		info->data.vidMemUsage.memPrivate = used_by(current_gpu, (int)info->pid);
		info->result = NV_OK;
	}
	return NV_OK;
}

ANSWER(no_partitions, NV2080_CTRL_GPU_GET_ACTIVE_PARTITION_IDS_PARAMS)
{
	UNUSED;
	p->partitionCount = 0;
	return NV_OK;
}

const struct control device_controls[] = {
	ROW(NV0080_CTRL_CMD_GPU_GET_CLASSLIST, class_list),
	ROW(NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, class_list_2),
	ROW(NV0080_CTRL_CMD_GPU_GET_NUM_SUBDEVICES, one),
	ROW(NV0080_CTRL_CMD_GPU_GET_VIRTUALIZATION_MODE, answer_zero),
	ROW(NV0080_CTRL_CMD_GPU_QUERY_SW_STATE_PERSISTENCE, one),
	ROW(NV0080_CTRL_CMD_HOST_GET_CAPS_V2, host_caps),
	ROW(NV0080_CTRL_CMD_FB_GET_CAPS_V2, memory_caps),
	ROW(NV0080_CTRL_CMD_DMA_GET_CAPS, dma_caps),
	ROW(NV0080_CTRL_CMD_DMA_ADV_SCHED_GET_VA_CAPS, address_caps),
	ROW(NV2080_CTRL_CMD_GPU_GET_NAME_STRING, name_string),
	ROW(NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING, short_name),
	ROW(NV2080_CTRL_CMD_GPU_GET_SIMULATION_INFO, answer_zero),
	ROW(NV2080_CTRL_CMD_GPU_GET_INFO, gpu_infos_at),
	ROW(NV2080_CTRL_CMD_GPU_GET_INFO_V2, gpu_infos),
	ROW(NV2080_CTRL_CMD_GPU_GET_GID_INFO, uuid),
	ROW(NV2080_CTRL_CMD_GPU_GET_PIDS, pids),
	ROW(NV2080_CTRL_CMD_GPU_GET_PID_INFO, pid_info),
	ROW(NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS, no_partitions),
	ROW(NV2080_CTRL_CMD_FB_GET_INFO, memory_infos_at),
	ROW(NV2080_CTRL_CMD_FB_GET_INFO_V2, memory_infos),
	ROW(NV2080_CTRL_CMD_BUS_GET_INFO, bus_infos_at),
	ROW(NV2080_CTRL_CMD_BUS_GET_INFO_V2, bus_infos),
	ROW(NV2080_CTRL_CMD_BUS_GET_PCI_INFO, pci_info),
	ROW(NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO, bars),
	ROW(NV2080_CTRL_CMD_MC_GET_ARCH_INFO, architecture),
	ROW(NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS, succeed),
	ROW(NV0041_CTRL_CMD_GET_SURFACE_INFO, surface_infos),
	ROW(0xcb330101, all_zero), // confidential computing: none
	{0},
};
