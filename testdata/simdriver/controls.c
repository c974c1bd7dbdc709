// SPDX-License-Identifier: Apache-2.0
// RM_CONTROL: finds the answer to a control. The tables are in controls_*.c.
#include "sim.h"

NvU32 succeed(struct object *o, void *parameters, u32 size)
{
	(void)o, (void)parameters, (void)size;
	return NV_OK;
}

NvU32 answer_zero(struct object *o, void *parameters, u32 size)
{
	(void)o, (void)size;
	*(u32 *)parameters = 0;
	return NV_OK;
}

// control leaves the parameters of a control without an answer as they are, and lets it succeed: most
// of these ask for a capability, and a zero declines it.
NvU32 control(struct object *o, u32 number, void *parameters, u32 size)
{
	static const struct control *const tables[] = {root_controls, device_controls, engine_controls};
	current_gpu = o ? (int)o->gpu : 0;
	for (size_t i = 0; i < COUNT(tables); i++)
		for (const struct control *c = tables[i]; c->number; c++)
			if (c->number == number)
				return c->answer(o, parameters, size);
	sim_unknown("control", number, control_name(number));
	return NV_OK;
}
