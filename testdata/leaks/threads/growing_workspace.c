// SPDX-License-Identifier: Apache-2.0
// verdict: none
// thread: workspaces that grow to the largest request
// A workspace that is replaced by a larger one where a request does not fit: less and less often.
#define RATE 60
#include "steps.h"

int main(int argc, char **argv)
{
	void *workspace = NULL;
	size_t room = 0;
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++) {
		void *in;
		size_t need = 1 << 20;
		for (int i = 0; i < 8; i++)
			need += steps_random(4 << 20);
		CHECK(cudaMalloc(&in, 1 << 20));
		if (need > room) {
			if (workspace)
				CHECK(cudaFree(workspace));
			CHECK(cudaMalloc(&workspace, need));
			room = need;
		}
		CHECK(cudaFree(in));
	}
	return 0;
}
