// SPDX-License-Identifier: Apache-2.0
// verdict: none
// Like vmm_handles.c without the leak: each handle is released once it is mapped, so the memory is
// freed with the mapping. The window grows from 4 to 12 segments and shrinks again.
#include "steps.h"

#define SEGMENT (4 << 20)
#define MOST 12

static uint64_t segment_map(void)
{
	uint64_t address, handle;
	struct properties p = {.type = 1, .location_type = 1};
	CHECK(cuMemAddressReserve(&address, SEGMENT, 0, 0, 0));
	CHECK(cuMemCreate(&handle, SEGMENT, &p, 0));
	CHECK(cuMemMap(address, SEGMENT, 0, handle, 0));
	CHECK(cuMemRelease(handle));
	return address;
}

int main(int argc, char **argv)
{
	uint64_t window[MOST];
	int live = 0;
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++) {
		int phase = (int)(step / 20 % 16), want = 4 + (phase < 8 ? phase : 15 - phase);
		if (live >= want) { // the oldest goes
			CHECK(cuMemUnmap(window[0], SEGMENT));
			CHECK(cuMemAddressFree(window[0], SEGMENT));
			memmove(window, window + 1, (size_t)--live * sizeof *window);
		}
		if (live < want)
			window[live++] = segment_map();
	}
	return 0;
}
