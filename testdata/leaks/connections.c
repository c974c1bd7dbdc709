// SPDX-License-Identifier: Apache-2.0
// verdict: none
// attach: early
// A hundred clients, each with a pinned buffer, allocated at the client's first message and
// replaced by a larger one when needed. Some clients return only after a long time.
#include "steps.h"

#define CLIENTS 100
#define MOST (1 << 20)

struct client {
	void *buffer;
	size_t size;
};

static void receive(struct client *c, size_t bytes)
{
	if (bytes <= c->size)
		return;
	for (c->size = 4096; c->size < bytes;)
		c->size *= 2;
	CHECK(cudaFreeHost(c->buffer));
	CHECK(cudaHostAlloc(&c->buffer, c->size, 0));
}

int main(int argc, char **argv)
{
	struct client client[CLIENTS] = {0};
	steps_begin(argc, argv);
	for (long step = 0; steps_go(step); step++)
		for (int i = 0; i < 4; i++) {
			unsigned n = steps_random(CLIENTS), least = steps_random(CLIENTS);
			receive(&client[n < least ? n : least], MOST / 4 + steps_random(MOST * 3 / 4));
		}
	return 0;
}
