// SPDX-License-Identifier: Apache-2.0
// reload TRUTH COUNT PAUSE A B: loads the libraries A and B in turn at the same address. It
// allocates three times through each, unloads it, and pauses for PAUSE µs. It prints "ready" and
// starts at a line on stdin. TRUTH gets a line "THREAD BEFORE AFTER ADDRESS LIBRARY" for each
// allocation.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int cudaMalloc(void **, size_t);
int cudaSetDevice(int);
typedef int take_function(void **, size_t);
typedef int entry_function(take_function *, void **);

static unsigned long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long)t.tv_sec * 1000000000 + (unsigned long)t.tv_nsec;
}

__attribute__((noinline)) static int take(void **p, size_t n)
{
	int result = cudaMalloc(p, n);
	__asm__ volatile("nop");
	return result;
}

static void load(FILE *truth, const char *path, int which)
{
	void *library = dlopen(path, RTLD_NOW), *p = NULL;
	if (!library)
		exit(1);
	entry_function *entry = (entry_function *)dlsym(library, "entry");
	for (int i = 0; i < 3; i++) {
		unsigned long before = now();
		if (entry(take, &p))
			exit(1);
		fprintf(truth, "%d %lu %lu %lu %d\n", (int)gettid(), before, now(), (unsigned long)p, which);
	}
	dlclose(library);
}

int main(int argc, char **argument)
{
	if (argc != 6 || cudaSetDevice(0))
		return 2;
	FILE *truth = fopen(argument[1], "w");
	puts("ready"), fflush(stdout);
	getchar();
	for (int i = 0; i < atoi(argument[2]); i++) {
		load(truth, argument[4 + i % 2], i % 2);
		usleep((unsigned)atoi(argument[3]));
	}
	fclose(truth);
	puts("done"), fflush(stdout);
	getchar();
	getchar();
}
