// SPDX-License-Identifier: Apache-2.0
// verdict: leaking
// Stream-ordered memory: of a computation's branches, only one frees its temporary.
#include "steps.h"

static void *stream; // the default one

static void compute(long step)
{
	void *result, *left, *right;
	CHECK(cudaMallocAsync(&result, 1 << 20, stream));
	CHECK(cudaMallocAsync(&left, 96 << 10, stream)); // site: leak
	CHECK(cudaMallocAsync(&right, 64 << 10, stream));
	CHECK(cudaFreeAsync(right, stream));
	if (step % 3)
		CHECK(cudaFreeAsync(left, stream));
	CHECK(cudaFreeAsync(result, stream));
}

int main(int argc, char **argv)
{
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++) {
		compute(step);
		if (step % 10 == 0)
			CHECK(cudaStreamSynchronize(stream));
	}
	return 0;
}
