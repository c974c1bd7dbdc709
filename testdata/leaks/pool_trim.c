// SPDX-License-Identifier: Apache-2.0
// verdict: none
// A stream-ordered pool: 40 steps of temporaries, then all are freed; sometimes trimmed.
#include "steps.h"

#define BATCH 40

int main(int argc, char **argv)
{
	void *pool, *stream = NULL, *temporary[BATCH];
	steps_begin(argc, argv);
	CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
	for (long step = 0; steps_go(step); step++) {
		CHECK(cudaMallocAsync(&temporary[step % BATCH], (128 << 10) + steps_random(1 << 20), stream));
		if (step % BATCH != BATCH - 1)
			continue;
		for (int i = 0; i < BATCH; i++)
			CHECK(cudaFreeAsync(temporary[i], stream));
		CHECK(cudaStreamSynchronize(stream));
		if (step % (4 * BATCH) == 4 * BATCH - 1)
			CHECK(cudaMemPoolTrimTo(pool, 4 << 20));
	}
	return 0;
}
