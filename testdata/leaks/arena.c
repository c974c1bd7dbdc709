// SPDX-License-Identifier: Apache-2.0
// verdict: none
// attach: early
// An arena: requests are cut from chunks, with a new chunk when they do not fit. Each step ends
// with a reset; chunks are never freed. Large steps are rare, so the last chunks come late.
#include "steps.h"

#define CHUNK (8 << 20)
#define CHUNKS 64

static struct {
	void *chunk[CHUNKS];
	int count, at;
	size_t used;
} arena;

static void *arena_take(size_t bytes)
{
	if (arena.used + bytes > CHUNK)
		arena.at++, arena.used = 0;
	if (arena.at == arena.count)
		CHECK(cudaMalloc(&arena.chunk[arena.count++], CHUNK));
	void *p = (char *)arena.chunk[arena.at] + arena.used;
	arena.used += bytes;
	return p;
}

int main(int argc, char **argv)
{
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++) {
		unsigned requests = 10 + steps_random(20) + (step % 50 == 49 ? steps_random(60) : 0);
		arena.at = 0, arena.used = 0;
		while (requests--)
			arena_take(64 + steps_random(2 << 20));
	}
	return 0;
}
