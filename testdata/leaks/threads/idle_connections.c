// SPDX-License-Identifier: Apache-2.0
// verdict: none
// thread: connection pools that open more under load
// A pool opens a connection where all are busy, and closes those that were idle for 2 s; load comes
// and goes.
#define RATE 50
#include "steps.h"

#define MOST 80

static struct {
	void *buffer;
	long busy, last;
} pool[MOST];

int main(int argc, char **argv)
{
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++) {
		long phase = step % 350;
		int requests = phase < 200 ? 1 + (int)(phase / 60) : 0;
		for (int i = 0; i < MOST; i++) {
			if (pool[i].buffer && step > pool[i].busy && step - pool[i].last > 100) {
				CHECK(cudaFree(pool[i].buffer));
				pool[i].buffer = NULL;
			}
		}
		for (int i = 0; i < MOST && requests; i++) {
			if (step <= pool[i].busy && pool[i].buffer)
				continue;
			if (!pool[i].buffer)
				CHECK(cudaMalloc(&pool[i].buffer, 3 << 20));
			pool[i].busy = step + 4 + steps_random(8), pool[i].last = pool[i].busy, requests--;
		}
	}
	return 0;
}
