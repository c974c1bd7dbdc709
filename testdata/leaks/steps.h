// SPDX-License-Identifier: Apache-2.0
// The loop of the programs in C, like training.py's: "ready PID", a step every 4 ms, "done PID"
// after --seconds; with --hold, the loop continues until stdin ends.
#pragma once
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef RATE
#define RATE 250 // steps per second, at most
#endif

// From the CUDA API.
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaFreeHost(void *);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaStreamSynchronize(void *);
int cudaDeviceGetDefaultMemPool(void **, int);
int cudaMemPoolTrimTo(void *, size_t);
struct channels { // cudaChannelFormatDesc
	int x, y, z, w, kind;
};
int cudaMallocArray(void **, const struct channels *, size_t, size_t, unsigned);
int cudaFreeArray(void *);

struct properties { // CUmemAllocationProp
	int type, handle_types, location_type, location;
	void *windows;
	unsigned char flags[8];
};
int cuMemCreate(uint64_t *, size_t, const struct properties *, unsigned long long);
int cuMemRelease(uint64_t);
int cuMemAddressReserve(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
int cuMemAddressFree(uint64_t, size_t);
int cuMemMap(uint64_t, size_t, size_t, uint64_t, unsigned long long);
int cuMemUnmap(uint64_t, size_t);

#define CHECK(call) \
	do { \
		int result_ = (call); \
		if (result_) { \
			fprintf(stderr, "%s: %d\n", #call, result_); \
			exit(1); \
		} \
	} while (0)

static struct {
	double seconds;
	bool hold, done;
	double begin;
} steps;

static inline double steps_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void steps_say(const char *word) { printf("%s %d\n", word, getpid()), fflush(stdout); }

static inline void steps_begin(int argc, char **argv)
{
	steps.seconds = 6;
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--hold"))
			steps.hold = true;
		else if (!strcmp(argv[i], "--seconds") && ++i < argc)
			steps.seconds = atof(argv[i]);
	CHECK(cudaFree(NULL)); // creates a context
	steps_say("ready");
	steps.begin = steps_now();
}

// steps_go waits for the next step and reports whether there is one.
static inline bool steps_go(long step)
{
	double now = steps_now(), due = steps.begin + (double)step / RATE;
	if (!steps.done && (double)step >= steps.seconds * RATE * 2 / 3 && now - steps.begin >= steps.seconds) {
		steps.done = true;
		steps_say("done");
		if (!steps.hold)
			return false;
	}
	struct pollfd in = {steps.hold ? 0 : -1, POLLIN, 0};
	return poll(&in, 1, due > now ? (int)((due - now) * 1000) : 0) == 0;
}

// steps_random returns 0 to below - 1, the same sequence in every run.
static inline unsigned steps_random(unsigned below)
{
	static uint64_t state = 88172645463325252;
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (unsigned)(state >> 11) % below;
}
