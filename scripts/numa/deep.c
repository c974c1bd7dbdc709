// SPDX-License-Identifier: Apache-2.0
// deep THREADS SECONDS STEP [bind]: threads that allocate and free below 24 frames of 1 KiB each,
// as deep as PyTorch's stacks, for SECONDS of CPU time each. After STEP allocations (0: never) they
// return to the outermost frame and start again, as a training step does. "bind" sets the memory
// policy of numactl --membind=0,1. Prints how many allocations each thread made.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);

static double seconds;
static long step;

static double used(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static __attribute__((noipa)) long bottom(double end)
{
	long n = 0;
	while (used() < end && (!step || n < step)) {
		void *p = NULL;
		if (cudaMalloc(&p, 4096) || cudaFree(p))
			exit(1);
		n++;
		for (volatile int i = 0; i < 100000; i++) // the program's own work: about 0.5 ms
			;
	}
	return n;
}

static __attribute__((noipa)) long level(int depth, double end)
{
	volatile char frame[1024];
	memset((char *)frame, depth, sizeof frame);
	long n = depth ? level(depth - 1, end) : bottom(end);
	return n + (frame[0] != depth);
}

static void *thread_main(void *argument)
{
	double end = used() + seconds;
	long n = 0;
	while (used() < end)
		n += level(24, end);
	printf("%ld allocations\n", n);
	return argument;
}

int main(int n, char **argument)
{
	pthread_t thread[64];
	int threads = n > 3 ? atoi(argument[1]) : 0;
	if (threads < 1 || threads > 64)
		return 2;
	seconds = atof(argument[2]);
	step = atol(argument[3]);
	enum { MPOL_BIND = 2 };
	unsigned long nodes = 3;
	if (n > 4 && syscall(SYS_set_mempolicy, MPOL_BIND, &nodes, 64UL))
		return 1;
	for (int i = 0; i < threads; i++)
		pthread_create(&thread[i], NULL, thread_main, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	return 0;
}
