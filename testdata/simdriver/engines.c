// SPDX-License-Identifier: Apache-2.0
// What the engines do with methods: the copy engine copies and fills; the compute engine writes
// inline data and releases semaphores. No kernel is executed, only its semaphores are released.
#include "sim.h"
#include "nvmisc.h"
#include "class/clc5b5.h"
#include "class/clc5c0.h"
#include <string.h>

// The last byte of a class is the same for all models.
enum { COPY_ENGINE = 0xb5, COMPUTE = 0xc0 };
#define ADDRESS_BITS 0x1ffffffffffffull

#define METHOD(address) (c->methods[subchannel][(address) / 4])
#define LONG_METHOD(upper) ((u64)METHOD(upper) << 32 | METHOD((upper) + 4))

static void copy(u64 to, u64 from, u64 length)
{
	while (length) {
		u64 room_to = 0, room_from = 0;
		u8 *target = gpu_pointer(to, &room_to), *source = gpu_pointer(from, &room_from);
		if (!target || !source) {
			sim_log("  copy %#lx to %#lx: not mapped", from, to);
			return;
		}
		u64 n = length < room_to ? length : room_to;
		n = n < room_from ? n : room_from;
		memmove(target, source, n);
		to += n;
		from += n;
		length -= n;
	}
}

// fill writes elements of count constants each.
static void fill(u64 to, u64 elements, u32 components, const u32 constants[2])
{
	u32 size = DRF_VAL(C5B5, _SET_REMAP_COMPONENTS, _COMPONENT_SIZE, components) + 1;
	u32 count = DRF_VAL(C5B5, _SET_REMAP_COMPONENTS, _NUM_DST_COMPONENTS, components) + 1;
	while (elements) {
		u64 room = 0;
		u8 *target = gpu_pointer(to, &room);
		u64 n = room / (size * count);
		if (!target || !n) {
			sim_log("  fill at %#lx: not mapped", to);
			return;
		}
		n = n < elements ? n : elements;
		for (u64 i = 0; i < n; i++)
			for (u32 k = 0; k < count; k++) {
				u32 from = components >> 4 * k & 7;
				u32 value = from == NVC5B5_SET_REMAP_COMPONENTS_DST_X_CONST_A ? constants[0] :
					from == NVC5B5_SET_REMAP_COMPONENTS_DST_X_CONST_B ? constants[1] : 0;
				memcpy(target + (i * count + k) * size, &value, size);
			}
		to += n * size * count;
		elements -= n;
	}
}

static void launch_copy(struct channel *c, u32 subchannel, u32 value)
{
	u64 from = LONG_METHOD(NVC5B5_OFFSET_IN_UPPER), to = LONG_METHOD(NVC5B5_OFFSET_OUT_UPPER);
	u32 length = METHOD(NVC5B5_LINE_LENGTH_IN);
	sim_log("  copy %#x: %#lx to %#lx, %#x bytes", value, from, to, length);
	u32 lines = DRF_VAL(C5B5, _LAUNCH_DMA, _MULTI_LINE_ENABLE, value) ? METHOD(NVC5B5_LINE_COUNT) : 1;
	const u32 constants[2] = {METHOD(NVC5B5_SET_REMAP_CONST_A), METHOD(NVC5B5_SET_REMAP_CONST_B)};
	if (DRF_VAL(C5B5, _LAUNCH_DMA, _DATA_TRANSFER_TYPE, value) == NVC5B5_LAUNCH_DMA_DATA_TRANSFER_TYPE_NONE)
		lines = 0;
	for (u32 i = 0; i < lines; i++) {
		u64 target = to + (u64)i * METHOD(NVC5B5_PITCH_OUT);
		if (DRF_VAL(C5B5, _LAUNCH_DMA, _REMAP_ENABLE, value))
			fill(target, length, METHOD(NVC5B5_SET_REMAP_COMPONENTS), constants);
		else
			copy(target, from + (u64)i * METHOD(NVC5B5_PITCH_IN), length);
	}
	u32 semaphore = DRF_VAL(C5B5, _LAUNCH_DMA, _SEMAPHORE_TYPE, value);
	if (semaphore)
		release_semaphore(LONG_METHOD(NVC5B5_SET_SEMAPHORE_A) & ADDRESS_BITS, METHOD(NVC5B5_SET_SEMAPHORE_PAYLOAD),
			semaphore == NVC5B5_LAUNCH_DMA_SEMAPHORE_TYPE_RELEASE_FOUR_WORD_SEMAPHORE ? FOUR_WORDS : ONE_WORD);
	if (DRF_VAL(C5B5, _LAUNCH_DMA, _INTERRUPT_TYPE, value))
		signal_events();
}

// is_inline_data reports whether the words behind a method are data and no methods.
bool is_inline_data(const struct channel *c, u32 subchannel, u32 method)
{
	return (c->class[subchannel] & 0xff) == COMPUTE && method == NVC5C0_LOAD_INLINE_DATA;
}

void run_engine_method(struct channel *c, u32 subchannel, u32 method, u32 value, u32 *data, u32 count)
{
	METHOD(method) = value;
	u32 engine = c->class[subchannel] & 0xff;
	if (engine == COPY_ENGINE && method == NVC5B5_LAUNCH_DMA)
		launch_copy(c, subchannel, value);
	else if (engine == COMPUTE)
		run_compute_method(c, subchannel, method, value, data, count);
}
