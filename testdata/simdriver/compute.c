// SPDX-License-Identifier: Apache-2.0
// The compute engine: inline data, report semaphores, and launches, which are completed without
// being executed. A launch is described by a QMD (queue meta data) of 256 bytes, whose published
// layouts differ between models; only the semaphores at its end are read.
#include "sim.h"
#include "nvmisc.h"
#include "class/clc5c0.h"
#include "class/clc6c0.h"
#include <string.h>

enum { QMD_BYTES = 256, QMD_VERSION_WORD = 18, QMD_VERSION_SHIFT = 4 };
#define ADDRESS_BITS 0x1ffffffffffffull

#define METHOD(address) (c->methods[subchannel][(address) / 4])
#define LONG_METHOD(upper) ((u64)METHOD(upper) << 32 | METHOD((upper) + 4))

// The layouts, by major version of the QMD.
static void release_v2(const u32 *q) // Turing
{
	if (q[4] >> 10 & 1)
		release_semaphore((u64)(q[24] & 0xff) << 32 | q[23], q[25], q[24] >> 31 ? ONE_WORD : FOUR_WORDS);
	if (q[4] >> 11 & 1)
		release_semaphore((u64)(q[27] & 0xff) << 32 | q[26], q[28], q[27] >> 31 ? ONE_WORD : FOUR_WORDS);
}

static void release_v3(const u32 *q) // Ampere
{
	for (const u32 *s = q + 24; s < q + 32; s += 4)
		if (s[1] >> 23 & 1)
			release_semaphore((u64)(s[1] & 0xff) << 32 | s[0], (u64)s[3] << 32 | s[2],
				(s[1] >> 30 & 3) == 1 ? ONE_WORD : s[1] >> 29 & 1 ? TWO_WORDS : FOUR_WORDS);
}

static void release_v4(const u32 *q) // Hopper
{
	for (int i = 0; i < 3; i++) {
		const u32 *s = q + 20 + 4 * i;
		u32 control = q[10 + i / 2] >> 16 * (i & 1), size = control >> 1 & 3;
		if (control & 1)
			release_semaphore((u64)(s[1] & 0x1ffffff) << 32 | s[0], (u64)s[3] << 32 | s[2],
				size == 1 ? ONE_WORD : size == 2 ? TWO_WORDS : FOUR_WORDS);
	}
}

static void complete_launch(u64 address)
{
	const u32 *q = (const u32 *)gpu_pointer(address, NULL);
	if (!q) {
		sim_log("  launch at %#lx: not mapped", address);
		return;
	}
	u32 version = q[QMD_VERSION_WORD] >> QMD_VERSION_SHIFT & 0xf;
	sim_log("  launch, QMD version %u", version);
	if (version <= 2)
		release_v2(q);
	else if (version == 3)
		release_v3(q);
	else
		release_v4(q);
}

static void launch_inline(struct channel *c, u32 subchannel)
{
	u64 address = LONG_METHOD(NVC5C0_SET_INLINE_QMD_ADDRESS_A) << 8;
	u8 *q = gpu_pointer(address, NULL);
	if (q)
		memcpy(q, &METHOD(NVC5C0_LOAD_INLINE_QMD_DATA(0)), QMD_BYTES);
	complete_launch(address);
}

// write_inline copies words of the pushbuffer to memory, behind those that came since LAUNCH_DMA.
static void write_inline(struct channel *c, u32 subchannel, const u32 *data, u32 count)
{
	u32 lines = METHOD(NVC5C0_LINE_COUNT), bytes = METHOD(NVC5C0_LINE_LENGTH_IN) * (lines ? lines : 1);
	u64 room = 0;
	u8 *to = gpu_pointer(LONG_METHOD(NVC5C0_OFFSET_OUT_UPPER) + c->inline_bytes, &room);
	u32 left = bytes > c->inline_bytes ? bytes - c->inline_bytes : 0, n = left < count * 4 ? left : count * 4;
	if (to)
		memcpy(to, data, n < room ? n : room);
	c->inline_bytes += n;
}

static void report_semaphore(struct channel *c, u32 subchannel, u32 value)
{
	release_semaphore(LONG_METHOD(NVC5C0_SET_REPORT_SEMAPHORE_A) & ADDRESS_BITS, METHOD(NVC5C0_SET_REPORT_SEMAPHORE_C),
		DRF_VAL(C5C0, _SET_REPORT_SEMAPHORE_D, _STRUCTURE_SIZE, value) ? ONE_WORD : FOUR_WORDS);
	if (DRF_VAL(C5C0, _SET_REPORT_SEMAPHORE_D, _AWAKEN_ENABLE, value))
		signal_events();
}

void run_compute_method(struct channel *c, u32 subchannel, u32 method, u32 value, u32 *data, u32 count)
{
	switch (method) {
	case NVC5C0_LAUNCH_DMA:
		c->inline_bytes = 0;
		return;
	case NVC5C0_LOAD_INLINE_DATA:
		write_inline(c, subchannel, data, count);
		return;
	case NVC5C0_SEND_PCAS_B:
	case NVC5C0_SEND_SIGNALING_PCAS_B:
	case NVC6C0_SEND_SIGNALING_PCAS2_B:
		complete_launch((u64)METHOD(NVC5C0_SEND_PCAS_A) << 8);
		return;
	case NVC5C0_LOAD_INLINE_QMD_DATA(QMD_BYTES / 4 - 1):
		launch_inline(c, subchannel);
		return;
	case NVC5C0_SET_REPORT_SEMAPHORE_D:
		report_semaphore(c, subchannel, value);
	}
}
