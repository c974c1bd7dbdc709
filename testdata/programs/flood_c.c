// SPDX-License-Identifier: Apache-2.0
// flood_c STACKS LIVE: fills tables as a hostile program would. It prints "ready PID", waits for a
// line, allocates 512 bytes from each of STACKS different stacks, then LIVE times 16 bytes from
// one, at most 1000 in 40 ms. It frees nothing, prints "done", waits for a line and exits.
//
// The stack of an allocation is main, flood, 20 times zero or one by the bits of its number,
// allocate, cudaMalloc.
#include "cudart.h"
#include "wait.h"
#include <stdlib.h>

#define FRAME __attribute__((noipa))

static unsigned calls;

FRAME static void allocate(size_t size)
{
	void *p;
	int result = cudaMalloc(&p, size);
	if (result) {
		fprintf(stderr, "flood_c: cudaMalloc (%d)\n", result);
		exit(1);
	}
	if (++calls % 1000 == 0) // no faster than events are read: the test is not about lost events
		usleep(40000);
}

FRAME static void zero(unsigned number, int bits);
FRAME static void one(unsigned number, int bits);

static inline __attribute__((always_inline)) void next(unsigned number, int bits)
{
	if (!bits)
		allocate(512);
	else if (number & 1)
		one(number >> 1, bits - 1);
	else
		zero(number >> 1, bits - 1);
}

FRAME static void zero(unsigned number, int bits) { next(number, bits); }
FRAME static void one(unsigned number, int bits) { next(number, bits); }

FRAME static void flood(unsigned stacks, unsigned live)
{
	for (unsigned i = 0; i < stacks; i++)
		next(i, 20);
	for (unsigned i = 0; i < live; i++)
		allocate(16);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	wait_prepare();
	printf("ready %d\n", getpid());
	fflush(stdout);
	wait_go(true);
	flood((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]));
	puts("done");
	fflush(stdout);
	wait_go(true);
	return 0;
}
