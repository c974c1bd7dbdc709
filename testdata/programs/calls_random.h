// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of calls_c --random.
#pragma once
#include "calls_c.h"

#define LIVE_MAX 48
#define CONTEXT_PARTS 3
#define PAGE (2ull << 20)

// The last two only with --share.
enum what { PLAIN, PITCHED, HOST, REGISTERED, ASYNC, ARRAY, MIPMAP, VMM, EXTERNAL, GRAPH, CONTEXT, POOL, LOW, KINDS, SHARED = KINDS, OPENED, ALL_KINDS };

struct object {
	enum what what;
	bool runtime;     // use the runtime where both have the function
	uint64_t address; // or handle
	uint64_t size, second, third;
	int device;
};

struct worker {
	pthread_t id;
	unsigned long long random;
	int calls, gpus, device, stops;
	bool free_all, no_contexts;
	const char *folder; // of --share
	pthread_barrier_t *meet;
	struct object live[LIVE_MAX];
	int lives, shared;
};

unsigned long long below(struct worker *w, unsigned long long n);
uint64_t random_size(struct worker *w);

// run_one ends the program unless the result is 0 or, if allowed, out of memory. It returns whether
// it is 0.
bool run_one(const char *name, bool may_lack, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e);
#define ALLOCATE(name, a, b, c, d, e) run_one(name, true, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), (uint64_t)(e))
#define MUST(name, a, b, c, d, e) run_one(name, false, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), (uint64_t)(e))

bool allocate(struct worker *w, struct object *o); // of o->what; returns whether there is something to release
void release(struct worker *w, struct object *o);

void share_begin(int gpus);                        // once, before the threads
void share_object(struct worker *w, uint64_t size); // allocates something and publishes it; it stays live
bool open_object(struct worker *w, struct object *o);
void close_object(struct worker *w, struct object *o);
