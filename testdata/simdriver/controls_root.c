// SPDX-License-Identifier: Apache-2.0
// Controls of the root object: the machine and its GPUs.
#include "sim.h"
#include "ctrl/ctrl0000/ctrl0000client.h"
#include "ctrl/ctrl0000/ctrl0000gpu.h"
#include "ctrl/ctrl0000/ctrl0000syncgpuboost.h"
#include "ctrl/ctrl0000/ctrl0000system.h"
#include "ctrl/ctrl0000/ctrl0000unix.h"
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

ANSWER(build_version, NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS)
{
	UNUSED;
	if (!p->pDriverVersionBuffer) {
		p->sizeOfStrings = 64;
		return NV_OK;
	}
	snprintf((char *)p->pDriverVersionBuffer, p->sizeOfStrings, "%s", DRIVER_VERSION);
	snprintf((char *)p->pVersionBuffer, p->sizeOfStrings, "simulated");
	snprintf((char *)p->pTitleBuffer, p->sizeOfStrings, "Driver Version %s", DRIVER_VERSION);
	return NV_OK;
}

ANSWER(gpu_ids, u32)
{
	UNUSED;
	memset(p, 0xff, size);
	for (int i = 0; i < gpu_count; i++)
		p[i] = gpu_id(i);
	return NV_OK;
}

ANSWER(device_mask, u32)
{
	UNUSED;
	*p = (1u << gpu_count) - 1;
	return NV_OK;
}

ANSWER(id_info, NV0000_CTRL_GPU_GET_ID_INFO_PARAMS)
{
	UNUSED;
	p->gpuFlags = 1; // in use
	p->deviceInstance = p->gpuInstance = gpu_of_id(p->gpuId);
	p->subDeviceInstance = p->sliStatus = 0;
	p->boardId = p->gpuId;
	p->numaId = -1;
	return NV_OK;
}

ANSWER(id_info_2, NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS)
{
	UNUSED;
	p->gpuFlags = 1;
	p->deviceInstance = p->gpuInstance = gpu_of_id(p->gpuId);
	p->subDeviceInstance = p->sliStatus = 0;
	p->boardId = p->gpuId;
	p->numaId = -1;
	return NV_OK;
}

ANSWER(pci_info, NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS)
{
	UNUSED;
	p->domain = p->slot = 0;
	p->bus = 1 + gpu_of_id(p->gpuId);
	return NV_OK;
}

ANSWER(uuid_of_id, NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS)
{
	UNUSED;
	gpu_uuid(gpu_of_id(p->gpuId), p->gpuUuid);
	p->uuidStrLen = UUID_BYTES;
	return NV_OK;
}

ANSWER(cpu_info, NV0000_CTRL_SYSTEM_GET_CPU_INFO_PARAMS)
{
	UNUSED;
	memset(p, 0, size);
	p->type = NV0000_CTRL_SYSTEM_CPU_TYPE_P6;
	p->capabilities = 0x1fff; // SSE and the like
	p->clock = 2400;
	p->L1DataCacheSize = 32;
	p->L2DataCacheSize = 512;
	p->dataCacheLineSize = 64;
	p->numLogicalCpus = p->numPhysicalCpus = p->coresOnDie = 2;
	return NV_OK;
}

// All GPUs reach each other over PCI: writes, reads, and the PCI bit of
// NV0000_CTRL_SYSTEM_GET_P2P_CAPS_*.
enum { P2P_CAPS = 1 << 0 | 1 << 1 | 1 << 6 };

static u32 p2p_caps(u8 *status, size_t count)
{
	memset(status, NV0000_P2P_CAPS_STATUS_OK, count);
	return P2P_CAPS;
}

ANSWER(peer_matrix, NV0000_CTRL_SYSTEM_GET_P2P_CAPS_MATRIX_PARAMS)
{
	UNUSED;
	u32 columns = p->grpBCount ? p->grpBCount : p->grpACount;
	const u32 *other = p->grpBCount ? p->gpuIdGrpB : p->gpuIdGrpA;
	for (u32 i = 0; i < p->grpACount && i < MAX_GPUS; i++)
		for (u32 k = 0; k < columns && k < MAX_GPUS; k++) {
			p->p2pCaps[i][k] = p->gpuIdGrpA[i] == other[k] ? 0 : P2P_CAPS;
			p->a2bOptimalReadCes[i][k] = p->a2bOptimalWriteCes[i][k] = 0;
			p->b2aOptimalReadCes[i][k] = p->b2aOptimalWriteCes[i][k] = 0;
		}
	return NV_OK;
}

ANSWER(peers, NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS)
{
	UNUSED;
	p->p2pCaps = p2p_caps(p->p2pCapsStatus, sizeof p->p2pCapsStatus);
	p->p2pOptimalReadCEs = p->p2pOptimalWriteCEs = 0;
	return NV_OK;
}

ANSWER(peers_2, NV0000_CTRL_SYSTEM_GET_P2P_CAPS_V2_PARAMS)
{
	UNUSED;
	p->p2pCaps = p2p_caps(p->p2pCapsStatus, sizeof p->p2pCapsStatus);
	p->p2pOptimalReadCEs = p->p2pOptimalWriteCEs = 0;
	return NV_OK;
}

ANSWER(fabric_status, NV0000_CTRL_SYSTEM_GET_FABRIC_STATUS_PARAMS)
{
	UNUSED;
	p->fabricStatus = NV0000_CTRL_GET_SYSTEM_FABRIC_STATUS_SKIP;
	return NV_OK;
}

// address_space returns the kind of an object's memory.
ANSWER(address_space, NV0000_CTRL_CLIENT_GET_ADDR_SPACE_TYPE_PARAMS)
{
	UNUSED;
	struct object *m = o ? find_object(o->client, p->hObject) : NULL;
	if (!m)
		p->addrSpaceType = NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_INVALID;
	else if (m->class == CLASS_LOCAL_MEMORY)
		p->addrSpaceType = NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_VIDMEM;
	else if (m->class == CLASS_SYSTEM_MEMORY || m->class == CLASS_PRIVILEGED_MEMORY || m->class == CLASS_OS_MEMORY)
		p->addrSpaceType = NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_SYSMEM;
	else
		p->addrSpaceType = NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_REGMEM;
	return NV_OK;
}

// export_object makes the descriptor, which the caller has opened, the memory itself, so that it
// works in the process that receives it.
ANSWER(export_object, NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS)
{
	UNUSED;
	struct object *m = o ? find_object(o->client, p->object.data.rmObject.hObject) : NULL;
	if (!m || m->memfd < 0 || p->fd < 0 || p->fd >= MAX_FDS)
		return NV_ERR_INVALID_ARGUMENT;
	close_device(p->fd);
	if (syscall(SYS_dup3, m->memfd, p->fd, 02000000 /* O_CLOEXEC */) < 0)
		return NV_ERR_INVALID_ARGUMENT;
	publish(m);
	sim_log("  export %#lx bytes as descriptor %d", m->size, p->fd);
	return NV_OK;
}

ANSWER(export_info, NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS)
{
	UNUSED;
	struct object found;
	if (!find_published_file(p->fd, &found))
		return NV_ERR_INVALID_ARGUMENT;
	syscall(SYS_close, found.memfd);
	memset(&p->deviceInstance, 0xff, offsetof(__typeof__(*p), maxObjects) - offsetof(__typeof__(*p), deviceInstance)); // no MIG instance
	p->deviceInstance = found.gpu;
	p->maxObjects = 1;
	return NV_OK;
}

ANSWER(import_object, NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS)
{
	UNUSED;
	struct object found;
	if (!o || !find_published_file(p->fd, &found))
		return NV_ERR_INVALID_ARGUMENT;
	if (!p->object.data.rmObject.hObject)
		p->object.data.rmObject.hObject = new_handle();
	struct object *m = add_object(o->client, p->object.data.rmObject.hParent, p->object.data.rmObject.hObject, found.class);
	share_memory(m, found.memfd, found.size);
	sim_log("  import %#lx bytes from descriptor %d", found.size, p->fd);
	return NV_OK;
}

const struct control root_controls[] = {
	ROW(NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION, build_version),
	ROW(NV0000_CTRL_CMD_SYSTEM_GET_CPU_INFO, cpu_info),
	ROW(NV0000_CTRL_CMD_SYSTEM_GET_FEATURES, answer_zero),
	ROW(NV0000_CTRL_CMD_SYSTEM_GET_FABRIC_STATUS, fabric_status),
	ROW(NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, peers),
	ROW(NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2, peers_2),
	ROW(NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX, peer_matrix),
	ROW(NV0000_CTRL_CMD_SYNC_GPU_BOOST_GROUP_INFO, answer_zero),
	ROW(NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE, address_space),
	ROW(NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY, succeed),
	ROW(NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, gpu_ids),
	ROW(NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, gpu_ids),
	ROW(NV0000_CTRL_CMD_GPU_ATTACH_IDS, succeed),
	ROW(NV0000_CTRL_CMD_GPU_GET_DEVICE_IDS, device_mask),
	ROW(NV0000_CTRL_CMD_GPU_GET_ID_INFO, id_info),
	ROW(NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, id_info_2),
	ROW(NV0000_CTRL_CMD_GPU_GET_PCI_INFO, pci_info),
	ROW(NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID, uuid_of_id),
	ROW(NV0000_CTRL_CMD_GPU_GET_MEMOP_ENABLE, answer_zero),
	ROW(NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, export_object),
	ROW(NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, import_object),
	ROW(NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO, export_info),
	{0},
};
