// SPDX-License-Identifier: Apache-2.0
// verdict: leaking
// Segments of the virtual memory API: unmapped, addresses freed, but handles not released.
#include "steps.h"

#define SEGMENT (4 << 20)

struct segment {
	uint64_t address, handle;
};

static struct segment segment_map(void)
{
	struct segment s;
	struct properties p = {.type = 1, .location_type = 1};
	CHECK(cuMemAddressReserve(&s.address, SEGMENT, 0, 0, 0));
	CHECK(cuMemCreate(&s.handle, SEGMENT, &p, 0)); // site: leak
	CHECK(cuMemMap(s.address, SEGMENT, 0, s.handle, 0));
	return s;
}

static void segment_unmap(struct segment *s)
{
	CHECK(cuMemUnmap(s->address, SEGMENT));
	CHECK(cuMemAddressFree(s->address, SEGMENT));
}

int main(int argc, char **argv)
{
	struct segment live[8] = {0};
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++) {
		struct segment *s = &live[step / 5 % 8];
		if (step % 5)
			continue;
		if (s->address)
			segment_unmap(s);
		*s = segment_map();
	}
	return 0;
}
