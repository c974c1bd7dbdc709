// SPDX-License-Identifier: Apache-2.0
// verdict: leaking
// thread: an early return without a free
// Requests fail in bursts, while a dependency is down; a failed one returns before it frees its
// second buffer.
#define RATE 60
#include "steps.h"

static int request(long step, int down)
{
	void *in, *out;
	CHECK(cudaMalloc(&in, 2 << 20));
	CHECK(cudaMalloc(&out, 1 << 20)); // site: leak
	CHECK(cudaFree(in));
	if (down && step % 2)
		return -1;
	CHECK(cudaFree(out));
	return 0;
}

int main(int argc, char **argv)
{
	long until = 0;
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++) {
		if (step % 20 == 0 && steps_random(6) == 0)
			until = step + 12;
		request(step, step < until);
	}
	return 0;
}
