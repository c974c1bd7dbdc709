// SPDX-License-Identifier: Apache-2.0
// verdict: leaking
// thread: plans of transforms, cached by a shape that never comes again
// A cache of plans by length of the signal: lengths hardly repeat, and each plan has a workspace.
#define RATE 40
#include "steps.h"

static struct plan {
	struct plan *next;
	size_t length;
	void *workspace;
} *plans;

static void *plan_make(size_t length)
{
	struct plan *p = malloc(sizeof *p);
	CHECK(cudaMalloc(&p->workspace, length * 16)); // site: leak
	p->length = length, p->next = plans, plans = p;
	return p->workspace;
}

static void *plan_of(size_t length)
{
	for (struct plan *p = plans; p; p = p->next)
		if (p->length == length)
			return p->workspace;
	return plan_make(length);
}

int main(int argc, char **argv)
{
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++) {
		void *signal;
		CHECK(cudaMalloc(&signal, 4 << 20));
		plan_of(50000 + steps_random(100000));
		CHECK(cudaFree(signal));
	}
	return 0;
}
