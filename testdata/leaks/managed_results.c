// SPDX-License-Identifier: Apache-2.0
// verdict: leaking
// A chain of results in managed memory: of the added nodes, only matching ones are removed.
#include "steps.h"

struct node {
	struct node *next;
	long key;
};

int main(int argc, char **argv)
{
	struct node *first = NULL;
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++) {
		struct node *n;
		CHECK(cudaMallocManaged((void **)&n, 32 << 10, 1)); // site: leak
		*n = (struct node){first, (long)steps_random(100)};
		first = n;
		for (struct node **at = &first; *at && step % 8 == 0;)
			if ((*at)->key < 10) {
				struct node *found = *at;
				*at = found->next;
				CHECK(cudaFree(found));
			} else
				at = &(*at)->next;
	}
	return 0;
}
