// SPDX-License-Identifier: Apache-2.0
// verdict: leaking
// A server that allocates memory per request; one in twelve returns early without freeing it.
#include "steps.h"

static int handle(unsigned request)
{
	void *input, *output;
	size_t bytes = 4096 + steps_random(1 << 18);
	CHECK(cudaMalloc(&input, bytes));
	CHECK(cudaMalloc(&output, 2 * bytes)); // site: leak
	if (request % 12 == 7) {
		CHECK(cudaFree(input));
		return -1;
	}
	CHECK(cudaFree(output));
	CHECK(cudaFree(input));
	return 0;
}

int main(int argc, char **argv)
{
	long failed = 0;
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++)
		failed += handle((unsigned)step) != 0;
	fprintf(stderr, "%ld requests failed\n", failed);
	return 0;
}
