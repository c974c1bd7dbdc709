// SPDX-License-Identifier: Apache-2.0
// walk TRUTH SEED WALKS THREADS DEPTH: random walks through the generated functions. Each walk ends
// in an allocation. At the end, it writes the stacks and the allocations to the file TRUTH:
//
//   s NUMBER PLACE…                     leaf first, in the format of walk.h
//   a THREAD BEFORE AFTER ADDRESS SIZE STACK API       times of the call, ns of CLOCK_MONOTONIC
#include "walk.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

extern "C" {
int cudaSetDevice(int);
int cudaMalloc(void **, size_t);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaMallocAsync(void **, size_t, void *);
int cudaMallocPitch(void **, size_t *, size_t, size_t);
int cudaFree(void *);
int cudaFreeHost(void *);
int cudaFreeAsync(void *, void *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemAllocManaged(uint64_t *, size_t, unsigned);
int cuMemFree_v2(uint64_t);
}

thread_local Walk walk_of_thread;
typedef int (*Function)(Walk &);
extern Function entries[];
extern const unsigned entry_count;
static int walk_depth;

struct Taken {
	uint64_t thread, before, after, address, size, stack;
	int api;
};
static const char *const api_name[] = {"cudaMalloc", "cudaMallocManaged", "cudaHostAlloc", "cudaMallocAsync", "cudaMallocPitch", "cuMemAlloc_v2", "cuMemAllocManaged"};
static std::mutex lock;
static std::map<std::vector<uint64_t>, uint64_t> stacks;
static std::vector<Taken> takens;
static thread_local std::vector<Taken> live;

[[noreturn]] static void die(const char *what, long number)
{
	fprintf(stderr, "walk: %s: %ld\n", what, number);
	_exit(1);
}

static uint64_t now()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return uint64_t(t.tv_sec) * 1000000000 + uint64_t(t.tv_nsec);
}

static void give(const Taken &t)
{
	int result = 0;
	switch (t.api) {
	case 2: result = cudaFreeHost((void *)t.address); break;
	case 3: result = cudaFreeAsync((void *)t.address, nullptr); break;
	case 5: case 6: result = cuMemFree_v2(t.address); break;
	default: result = cudaFree((void *)t.address);
	}
	if (result)
		die("free", result);
}

static void note(Walk &w, Taken &t)
{
	if (w.depth > Walk::ROOM)
		die("too deep", w.depth);
	std::vector<uint64_t> stack(w.at, w.at + w.depth);
	std::reverse(stack.begin(), stack.end());
	std::lock_guard<std::mutex> hold(lock);
	t.stack = stacks.emplace(std::move(stack), stacks.size()).first->second;
	takens.push_back(t);
	live.push_back(t);
}

__attribute__((noinline, noclone)) int take(Walk &w)
{
	enum { ID = 0, KIND = 0 };
	if (live.size() > 64 || (live.size() && w.next() % 3 == 0)) {
		size_t i = w.next() % live.size();
		give(live[i]);
		live[i] = live.back();
		live.pop_back();
	}
	Taken t{};
	t.size = 1 + w.next() % 4000;
	t.api = int(w.next() % 7);
	void *p = nullptr;
	uint64_t address = 0;
	size_t pitch = 512;
	int result = 0, depth = w.depth;
	t.thread = uint64_t(gettid());
	t.before = now();
	switch (t.api) {
	case 0: result = CALL(cudaMalloc(&p, t.size)); break;
	case 1: result = CALL(cudaMallocManaged(&p, t.size, 1)); break;
	case 2: result = CALL(cudaHostAlloc(&p, t.size, 0)); break;
	case 3: result = CALL(cudaMallocAsync(&p, t.size, nullptr)); break;
	case 4: result = CALL(cudaMallocPitch(&p, &pitch, t.size, 3)); break;
	case 5: result = CALL(cuMemAlloc_v2(&address, t.size)); break;
	case 6: result = CALL(cuMemAllocManaged(&address, t.size, 1)); break;
	}
	t.after = now();
	if (result)
		die("allocate", result);
	if (t.api == 4)
		t.size = pitch * 3;
	w.depth = depth + 1; // as in the call: nothing has written there since
	t.address = address ? address : (uint64_t)p;
	note(w, t);
	w.depth = depth;
	return 1;
}

int in_library(Walk &w, unsigned which)
{
	typedef int (*Entry)(Walk &, unsigned);
	static Entry entry = []() -> Entry {
		void *library = dlopen(getenv("WALK_LIBRARY"), RTLD_NOW);
		if (!library)
			die(dlerror(), 0);
		return (Entry)dlsym(library, "library_entry");
	}();
	enum { ID = 1, KIND = 0 };
	return CALL(entry(w, which));
}

struct Start {
	Function function;
	Walk *w;
	uint64_t random;
	int left, result;
	ucontext_t back, here;
};
static thread_local Start *starting;

static void coroutine()
{
	enum { ID = 2, KIND = ROOT };
	Start *s = starting;
	Walk &w = *s->w;
	s->result = CALL(s->function(w));
	swapcontext(&s->here, &s->back);
}

int on_stack_of_its_own(Walk &w, Function f)
{
	const size_t size = 1 << 20;
	std::vector<char> stack(size);
	Start s{};
	s.function = f, s.w = &w;
	getcontext(&s.here);
	s.here.uc_stack.ss_sp = stack.data(), s.here.uc_stack.ss_size = size, s.here.uc_link = nullptr;
	makecontext(&s.here, coroutine, 0);
	Start *outer = starting;
	starting = &s;
	std::vector<uint64_t> kept(w.at, w.at + w.depth);
	int depth = w.depth;
	w.depth = 0;
	swapcontext(&s.back, &s.here);
	std::copy(kept.begin(), kept.end(), w.at);
	w.depth = depth;
	starting = outer;
	return s.result;
}

static void handler(int)
{
	enum { ID = 3, KIND = 0 };
	Start *s = starting;
	Walk &w = *s->w;
	s->result = CALL(s->function(w));
}

int in_signal_handler(Walk &w, Function f)
{
	enum { ID = 4, KIND = 0 };
	Start s{};
	s.function = f, s.w = &w;
	Start *outer = starting;
	starting = &s;
	int result = CALL_THROUGH(pthread_kill(pthread_self(), SIGUSR2));
	starting = outer;
	return result;
}

static void *thread_begins(void *argument)
{
	enum { ID = 5, KIND = ROOT };
	Start *s = (Start *)argument;
	cudaSetDevice(0);
	Walk &w = walk_of_thread;
	w.random = s->random, w.left = s->left;
	s->result = CALL(s->function(w));
	for (const Taken &t : live)
		give(t);
	live.clear();
	return nullptr;
}

int in_thread(Walk &w, Function f)
{
	Start s{};
	s.function = f, s.random = w.next() | 1, s.left = w.left;
	pthread_t thread;
	if (pthread_create(&thread, nullptr, thread_begins, &s))
		die("thread", 0);
	pthread_join(thread, nullptr);
	return s.result;
}

static void walk_often(Walk &w, long walks)
{
	enum { ID = 6, KIND = 0 };
	for (long i = 0; i < walks; i++) {
		w.left = int(w.next() % unsigned(walk_depth));
		try {
			CALL(entries[w.next() % entry_count](w));
		} catch (int) {
			w.depth--;
		}
	}
}

struct Worker {
	uint64_t seed;
	long walks;
};

static void *worker(void *argument)
{
	enum { ID = 7, KIND = ROOT };
	Worker *worker = (Worker *)argument;
	cudaSetDevice(0);
	Walk &w = walk_of_thread;
	w.random = worker->seed;
	CALL((walk_often(w, worker->walks), 0));
	return nullptr;
}

int main(int, char **argument)
{
	signal(SIGUSR2, handler);
	cudaSetDevice(0);
	long walks = atol(argument[3]), threads = atol(argument[4]);
	walk_depth = atoi(argument[5]);
	std::vector<Worker> workers(threads);
	std::vector<pthread_t> ids(threads);
	for (long i = 0; i < threads; i++) {
		workers[i] = {strtoull(argument[2], nullptr, 10) * 1000003 + uint64_t(i) * 7919 + 1, walks / (threads + 1)};
		pthread_create(&ids[i], nullptr, worker, &workers[i]);
	}
	{
		enum { ID = 8, KIND = ROOT };
		Walk &w = walk_of_thread;
		w.random = strtoull(argument[2], nullptr, 10) * 1000003 + 12345;
		CALL((walk_often(w, walks / (threads + 1)), 0));
	}
	for (pthread_t id : ids)
		pthread_join(id, nullptr);
	FILE *out = fopen(argument[1], "w");
	if (!out)
		die(argument[1], 0);
	for (const auto &s : stacks) {
		fprintf(out, "s %lu", s.second);
		for (uint64_t at : s.first)
			fprintf(out, " %lu", at);
		fputc('\n', out);
	}
	for (const Taken &t : takens)
		fprintf(out, "a %lu %lu %lu %lu %lu %lu %s\n", t.thread, t.before, t.after, t.address, t.size, t.stack, api_name[t.api]);
	if (fclose(out))
		die("write", 0);
}
