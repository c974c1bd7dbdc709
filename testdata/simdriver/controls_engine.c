// SPDX-License-Identifier: Apache-2.0
// Controls of engines and channels.
#include "sim.h"
#include "ctrl/ctrl0080.h"
#include "ctrl/ctrl2080.h"
#include "ctrl/ctrl906f.h"
#include "ctrl/ctrla06c.h"
#include "ctrl/ctrlc36f.h"
#include <string.h>

#ifndef NVC36F_CTRL_GET_CLASS_ENGINEID // until 550, with the parameters of NV906F's
#define NVC36F_CTRL_GET_CLASS_ENGINEID 0xc36f0101
#endif

enum { ENGINE_GRAPHICS = 1, ENGINE_COPY = 9, ENGINE_NVDEC = 0x13, ENGINE_SOFTWARE = 0x22 }; // NV2080_ENGINE_TYPE_*
enum { SMS_PER_TPC = 2, GRAPHICS_COPY_ENGINES = 2 };
enum { CE_CAPS_0 = 0x80 | 0x2c, CE_CAPS_GRAPHICS = 1, CE_CAPS_1 = 3 };

static u32 list_engines(u32 *list)
{
	u32 n = 0;
	list[n++] = ENGINE_GRAPHICS;
	for (u32 i = 0; i < model->copy_engines; i++)
		list[n++] = ENGINE_COPY + i;
	list[n++] = ENGINE_NVDEC;
	list[n++] = ENGINE_SOFTWARE;
	return n;
}

ANSWER(engines, NV2080_CTRL_GPU_GET_ENGINES_PARAMS)
{
	UNUSED;
	u32 list[64];
	p->engineCount = list_engines(list);
	if (p->engineList)
		memcpy((void *)p->engineList, list, p->engineCount * sizeof *list);
	return NV_OK;
}

ANSWER(engines_2, NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS)
{
	UNUSED;
	p->engineCount = list_engines(p->engineList);
	return NV_OK;
}

ANSWER(graphics_infos, struct info_pointer)
{
	UNUSED;
	fill_infos(p->infos, p->count, graphics_info);
	return NV_OK;
}

ANSWER(sm_order, NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS)
{
	UNUSED;
	p->numSm = SMS_PER_TPC * model->tpcs;
	p->numTpc = model->tpcs;
	for (u32 i = 0; i < p->numSm; i++) {
		u32 tpc = i / SMS_PER_TPC;
		p->globalSmId[i].gpcId = p->globalSmId[i].virtualGpcId = tpc % model->gpcs;
		p->globalSmId[i].localTpcId = tpc / model->gpcs;
		p->globalSmId[i].localSmId = i % SMS_PER_TPC;
		p->globalSmId[i].globalTpcId = p->globalSmId[i].migratableTpcId = tpc;
	}
	return NV_OK;
}

ANSWER(gpc_mask, NV2080_CTRL_GR_GET_GPC_MASK_PARAMS)
{
	UNUSED;
	p->gpcMask = (1u << model->gpcs) - 1;
	return NV_OK;
}

ANSWER(tpc_mask, NV2080_CTRL_GR_GET_TPC_MASK_PARAMS)
{
	UNUSED;
	p->tpcMask = (1u << model->tpcs_per_gpc) - 1;
	return NV_OK;
}

static void copy_engine_caps(u32 engine, u8 *caps)
{
	caps[0] = CE_CAPS_0 | (engine < GRAPHICS_COPY_ENGINES ? CE_CAPS_GRAPHICS : 0);
	caps[1] = CE_CAPS_1;
}

ANSWER(all_copy_engine_caps, NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS)
{
	UNUSED;
	memset(p, 0, size);
	p->present = (1u << model->copy_engines) - 1;
	for (u32 i = 0; i < model->copy_engines; i++)
		copy_engine_caps(i, p->capsTbl[i]);
	return NV_OK;
}

ANSWER(copy_engine_caps_2, NV2080_CTRL_CE_GET_CAPS_V2_PARAMS)
{
	UNUSED;
	copy_engine_caps(p->ceEngineType - ENGINE_COPY, p->capsTbl);
	return NV_OK;
}

// context_buffer_size gives the size of an engine's context, which the kernel allocates.
ANSWER(context_buffer_size, NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS)
{
	UNUSED;
	p->totalBufferSize = 2 << 20;
	return NV_OK;
}

ANSWER(channel_list, NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS)
{
	UNUSED;
	u32 *handles = (u32 *)p->pChannelHandleList, *tokens = (u32 *)p->pChannelList;
	for (u32 i = 0; i < p->numChannels; i++) {
		struct object *c = o ? find_object(o->client, handles[i]) : NULL;
		tokens[i] = c ? c->token : 0;
	}
	return NV_OK;
}

ANSWER(class_engine, NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS)
{
	UNUSED;
	struct object *engine = o ? find_object(o->client, p->hObject) : NULL;
	u32 class = engine ? engine->class : 0;
	bool copies = (class & 0xff) == 0xb5;
	p->classEngineID = class | (copies ? 4 : 0) << 16;
	p->classID = class;
	p->engineID = copies ? ENGINE_COPY : ENGINE_GRAPHICS;
	return NV_OK;
}

ANSWER(work_token, NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS)
{
	UNUSED;
	p->workSubmitToken = o ? o->token : 0;
	return NV_OK;
}

// Controls without a published name, which ask for clocks. The values only have to be accepted.
ANSWER(clock_first, u32)
{
	UNUSED;
	p[0] = ~0u;
	return NV_OK;
}

ANSWER(clock_second, u32)
{
	UNUSED;
	p[1] = ~0u;
	return NV_OK;
}

ANSWER(clock_list, u32)
{
	UNUSED;
	enum { ROWS = 32 };
	for (u32 i = 0; i < p[1] && i < ROWS; i++)
		for (u32 k = 1; k < 4; k++)
			p[2 + 4 * i + k] = 1000000 + k; // kHz
	return NV_OK;
}

const struct control engine_controls[] = {
	ROW(NV2080_CTRL_CMD_GPU_GET_ENGINES, engines),
	ROW(NV2080_CTRL_CMD_GPU_GET_ENGINES_V2, engines_2),
	ROW(NV2080_CTRL_CMD_GR_GET_INFO, graphics_infos),
	ROW(NV0080_CTRL_CMD_GR_GET_INFO, graphics_infos),
	ROW(NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER, sm_order),
	ROW(NV2080_CTRL_CMD_GR_GET_GPC_MASK, gpc_mask),
	ROW(NV2080_CTRL_CMD_GR_GET_TPC_MASK, tpc_mask),
	ROW(NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE, context_buffer_size),
	ROW(NV2080_CTRL_CMD_CE_GET_ALL_CAPS, all_copy_engine_caps),
	ROW(NV2080_CTRL_CMD_CE_GET_CAPS_V2, copy_engine_caps_2),
	ROW(NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, channel_list),
	ROW(NV906F_CTRL_GET_CLASS_ENGINEID, class_engine),
	ROW(NVC36F_CTRL_GET_CLASS_ENGINEID, class_engine),
	ROW(NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, work_token),
	ROW(NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, succeed),
	ROW(0x20809001, clock_first),
	ROW(0x20809009, clock_second),
	ROW(0x20809064, clock_list),
	{0},
};
