// SPDX-License-Identifier: Apache-2.0
// verdict: none
// A ring of 64 buffers, each allocated when its slot is written and freed 64 steps later.
#include "steps.h"

#define PLACES 64

int main(int argc, char **argv)
{
	void *ring[PLACES] = {0};
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++) {
		void **place = &ring[step % PLACES];
		CHECK(cudaFree(*place));
		CHECK(cudaMalloc(place, (256 << 10) + steps_random(1 << 20)));
	}
	return 0;
}
