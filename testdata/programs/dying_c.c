// SPDX-License-Identifier: Apache-2.0
// dying_c THREADS: threads that exit in the middle of cudaMalloc, one after the other, wherever
// FAKECUDA_LATENCY_US delays them. Each has the id of its predecessor, if the kernel allows to set
// it. Then the main thread and a thread with that id allocate 3000 bytes each. It prints "ready
// PID" and waits for a line.
#define _GNU_SOURCE
#include "cudart.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic int thread_id;

static void end_thread(int signal)
{
	(void)signal;
	syscall(SYS_exit, 0);
}

static void *allocate(void *size)
{
	void *p;
	thread_id = (int)syscall(SYS_gettid);
	if ((size_t)size == 3000 ? cudaMallocManaged(&p, (size_t)size, 1) : cudaMalloc(&p, (size_t)size))
		exit(1);
	return NULL;
}

// begin starts a thread that allocates, with the id of the last one if possible.
static pthread_t begin(size_t size)
{
	pthread_t thread;
	FILE *last = fopen("/proc/sys/kernel/ns_last_pid", "w");
	if (last && thread_id)
		fprintf(last, "%d", thread_id - 1);
	if (last)
		fclose(last);
	thread_id = 0;
	if (pthread_create(&thread, NULL, allocate, (void *)size) != 0)
		exit(1);
	while (!thread_id)
		;
	return thread;
}

int main(int argc, char **argv)
{
	void *p;
	signal(SIGUSR2, end_thread);
	cudaFree(NULL);
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
		pthread_t thread = begin(1000);
		usleep(5000);
		syscall(SYS_tgkill, getpid(), thread_id, SIGUSR2);
		pthread_join(thread, NULL);
	}
	if (cudaMalloc(&p, 3000) != 0)
		return 1;
	pthread_join(begin(3000), NULL);
	printf("ready %d\n", getpid()), fflush(stdout);
	getchar();
	return 0;
}
