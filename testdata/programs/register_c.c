// SPDX-License-Identifier: Apache-2.0
// register_c COUNT: code that uses the frame pointer's register for another value, as code without
// frame pointers does, different at each of COUNT calls of cudaMalloc. It prints "ready PID", waits
// for a line, allocates, prints "done" and waits for a line again.
#include "cudart.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FRAME __attribute__((noipa))

// allocate saves the register, so unwinding restores it.
FRAME static int allocate(void)
{
	void *p;
	if (cudaMalloc(&p, 1))
		exit(1);
#if defined(__x86_64__)
	__asm__ volatile("" ::: "rbx", "rbp");
#endif
	return 1;
}

FRAME static long keep(long value)
{
#if defined(__x86_64__)
	register long kept __asm__("rbp") = value;
#else
	long kept = value;
#endif
	__asm__ volatile("" : "+r"(kept));
	long count = allocate();
	__asm__ volatile("" : "+r"(kept));
	return kept + count;
}

int main(int argc, char **argv)
{
	char line[8];
	volatile long sum = 0;
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	for (long i = 0; i < atol(argv[argc - 1]); i++)
		sum += keep(i * 977);
	puts("done");
	fflush(stdout);
	return fgets(line, sizeof line, stdin) ? 0 : 1;
}
