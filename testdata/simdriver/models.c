// SPDX-License-Identifier: Apache-2.0
// The simulated GPUs. A new chip is a new row. The classes are those that the driver offers for the
// chip; libcuda takes the newest of each kind that it knows.
#include "sim.h"
#include <stdlib.h>
#include <string.h>

enum { RESERVED_MIB = 1024 }; // what the model's driver keeps for itself

static const struct model models[] = {
	{.key = "t4", .name = "Tesla T4", .chip = "TU104", .device = 0x1eb8, .subsystem = 0x12a210de,
	 .architecture = 0x160, .implementation = 4, .sm_version = 0x705,
	 .gpcs = 5, .tpcs_per_gpc = 4, .tpcs = 20, .warps_per_sm = 32, .max_gpcs = 6,
	 .l2_bytes = 4 << 20, .copy_engines = 5, .memory_mib = 16384,
	 .classes = {0xc5c0, 0xc597, 0xc5b5, 0xc46f, 0xc36f, 0xc461, 0xc361, 0x9067, 0x90f1, 0xa06c, 0xa140, 0x902d, 0x9072, 0x90e6,
		0x90e7, 0x9096, 0xc365, 0xc369, 0xc076, 0x503b, 0x503c, 0x50a0, 0x0070, 0x00de, 0xc4b0, 0xc4b7, 0x9074, 0x007d, 0x5080,
		0x0060, 0x0073}},
	{.key = "a100", .name = "NVIDIA A100-SXM4-40GB", .chip = "GA100", .device = 0x20b0, .subsystem = 0x134f10de,
	 .architecture = 0x170, .implementation = 0, .sm_version = 0x800,
	 .gpcs = 7, .tpcs_per_gpc = 8, .tpcs = 54, .warps_per_sm = 64, .max_gpcs = 8,
	 .l2_bytes = 40 << 20, .copy_engines = 10, .memory_mib = 40960,
	 .classes = {0xc365, 0xc697, 0xc56f, 0xc6c0, 0xc6b5, 0xc561, 0x9067, 0x902d, 0x90f1, 0x844c, 0x90e7, 0x90e6, 0x9074, 0x9096,
		0xc076, 0xa06c, 0xa140, 0xc369, 0x0060, 0x0070, 0x007d, 0x5080, 0x50a0, 0x503b, 0x503c, 0xa081, 0xa084, 0xc4d1, 0xc6b0,
		0xc6fa, 0xcb33, 0x00de, 0xc46f, 0xc461, 0xc36f, 0xc361}},
	{.key = "h100", .name = "NVIDIA H100 80GB HBM3", .chip = "GH100", .device = 0x2330, .subsystem = 0x16c110de,
	 .architecture = 0x180, .implementation = 0, .sm_version = 0x900,
	 .gpcs = 8, .tpcs_per_gpc = 9, .tpcs = 66, .warps_per_sm = 64, .max_gpcs = 8,
	 .l2_bytes = 50 << 20, .copy_engines = 10, .memory_mib = 81559,
	 .classes = {0xc365, 0xc56f, 0xc561, 0x9067, 0x902d, 0x90f1, 0x844c, 0x90e7, 0x90e6, 0x9074, 0x9096, 0xc076, 0xcb97, 0xc86f,
		0xcbc0, 0xc8b5, 0xcba2, 0xc661, 0xa06c, 0xa140, 0xc369, 0x0060, 0x0070, 0x007d, 0x5080, 0x50a0, 0x503b, 0x503c, 0xa081,
		0xa084, 0xb8b0, 0xb8d1, 0xb8fa, 0xcb33, 0x00de, 0xc46f, 0xc461, 0xc36f, 0xc361}},
};

const struct model *model = models;
int gpu_count = 1;

// choose_model reads $SIMDRIVER_MODEL (by default t4), $SIMDRIVER_GPUS (1 to 8) and
// $SIMDRIVER_MEMORY_MIB (by default the model's).
void choose_model(void)
{
	static struct model other;
	const char *key = getenv("SIMDRIVER_MODEL"), *gpus = getenv("SIMDRIVER_GPUS"), *memory = getenv("SIMDRIVER_MEMORY_MIB");
	for (size_t i = 0; key && i < COUNT(models); i++)
		if (!strcmp(key, models[i].key))
			model = &models[i];
	if (memory && atoi(memory) > RESERVED_MIB) {
		other = *model;
		other.memory_mib = (u64)atoi(memory);
		model = &other;
	}
	if (gpus && atoi(gpus) >= 1 && atoi(gpus) <= MAX_GPUS)
		gpu_count = atoi(gpus);
}

u64 heap_bytes(void) { return (model->memory_mib - RESERVED_MIB) << 20; }

u32 class_count(void)
{
	u32 n = 0;
	while (n < COUNT(model->classes) && model->classes[n])
		n++;
	return n;
}

u32 gpu_id(int gpu) { return 0x100 * (1 + gpu); }

int gpu_of_id(u32 id)
{
	u32 gpu = id / 0x100 - 1;
	return gpu < MAX_GPUS ? (int)gpu : 0;
}
