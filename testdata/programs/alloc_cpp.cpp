// SPDX-License-Identifier: Apache-2.0
// alloc_cpp [--wait]: allocates in templates, inlined functions, virtual functions, lambdas and
// constructors. Prints the expected profile as JSON lines, then "done": {"api", "kind", "size",
// "count", "live" (how many of count), "stack": names without parameters, root first, "signatures":
// in full, "inlined": indexes into both}. With --wait, it prints "ready PID" first and waits for
// SIGUSR1 or a line on stdin before it allocates, and again before it exits.
#include "cudart.h"
#include "wait.h"
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#define FRAME __attribute__((noipa))
#define INLINED inline __attribute__((always_inline))

static void check(int result)
{
	if (result != 0)
		throw std::runtime_error("CUDA error");
}

namespace pool {

template <typename T> class Buffer {
public:
	FRAME explicit Buffer(size_t n) { allocate(n); }
	FRAME ~Buffer() { cudaFree(data_); }
	Buffer(const Buffer &) = delete;

private:
	INLINED void allocate(size_t n) { check(cudaMalloc(&data_, n * sizeof(T))); }
	void *data_ = nullptr;
};

namespace {
FRAME void *grab(size_t bytes)
{
	void *p = nullptr;
	check(cudaMallocManaged(&p, bytes, 1));
	return p;
}
} // namespace

template <typename T, int Rows> FRAME void *reserve(T rows) { return grab(static_cast<size_t>(rows) * Rows); }

} // namespace pool

struct Layer {
	virtual ~Layer() = default;
	virtual void build(size_t n) = 0;
};

struct Convolution : Layer {
	std::unique_ptr<pool::Buffer<float>> weights;
	FRAME void build(size_t n) override { weights.reset(new pool::Buffer<float>(n)); }
};

class Network {
public:
	FRAME void operator()(size_t n)
	{
		for (auto &l : layers_)
			l->build(n);
	}
	FRAME Network &operator<<(Layer *l)
	{
		layers_.emplace_back(l);
		return *this;
	}

private:
	std::vector<std::unique_ptr<Layer>> layers_;
};

FRAME static void scratch()
{
	pool::Buffer<double> temporary(125);
}

static INLINED void *staging_inner(size_t n)
{
	void *p = nullptr;
	check(cudaHostAlloc(&p, n, 0));
	return p;
}

static INLINED void *staging(size_t n) { return staging_inner(n + 1); }

FRAME static void *transfer(size_t n)
{
	void *p = staging(n);
	return p;
}

FRAME static void attempt(size_t n)
{
	try {
		pool::Buffer<char> too_big(n);
		std::abort();
	} catch (const std::runtime_error &) {
	}
}

static const char *const expected = R"json({"api":"cudaMalloc","kind":"device","size":4000,"count":3,"live":3,"stack":["main","Network::operator()","Convolution::build","pool::Buffer<float>::Buffer","pool::Buffer<float>::allocate","cudaMalloc"],"signatures":["main","Network::operator()(unsigned long)","Convolution::build(unsigned long)","pool::Buffer<float>::Buffer(unsigned long)","pool::Buffer<float>::allocate(unsigned long)","cudaMalloc"],"inlined":[4]}
{"api":"cudaMalloc","kind":"device","size":1000,"count":5,"live":0,"stack":["main","scratch","pool::Buffer<double>::Buffer","pool::Buffer<double>::allocate","cudaMalloc"],"signatures":["main","scratch()","pool::Buffer<double>::Buffer(unsigned long)","pool::Buffer<double>::allocate(unsigned long)","cudaMalloc"],"inlined":[3]}
{"api":"cudaMallocManaged","kind":"managed","size":1024,"count":1,"live":1,"stack":["main","pool::reserve<short, 64>","pool::(anonymous namespace)::grab","cudaMallocManaged"],"signatures":["main","void* pool::reserve<short, 64>(short)","pool::(anonymous namespace)::grab(unsigned long)","cudaMallocManaged"],"inlined":[]}
{"api":"cudaMallocManaged","kind":"managed","size":2048,"count":1,"live":1,"stack":["main","main::{lambda(int)#1}::operator()","pool::reserve<int, 128>","pool::(anonymous namespace)::grab","cudaMallocManaged"],"signatures":["main","main::{lambda(int)#1}::operator()(int) const","void* pool::reserve<int, 128>(int)","pool::(anonymous namespace)::grab(unsigned long)","cudaMallocManaged"],"inlined":[]}
{"api":"cudaHostAlloc","kind":"pinned","size":5001,"count":2,"live":2,"stack":["main","transfer","staging","staging_inner","cudaHostAlloc"],"signatures":["main","transfer(unsigned long)","staging(unsigned long)","staging_inner(unsigned long)","cudaHostAlloc"],"inlined":[2,3]}
{"api":"cudaMalloc","kind":"device","size":1152921504606846976,"count":1,"live":0,"failed":2,"stack":["main","attempt","pool::Buffer<char>::Buffer","pool::Buffer<char>::allocate","cudaMalloc"],"signatures":["main","attempt(unsigned long)","pool::Buffer<char>::Buffer(unsigned long)","pool::Buffer<char>::allocate(unsigned long)","cudaMalloc"],"inlined":[3]})json";

int main(int argc, char **argv)
{
	volatile int two = 2, five = 5; // prevents unrolling: one call site
	bool wait = argc > 1 && std::strcmp(argv[1], "--wait") == 0;
	wait_prepare();
	if (wait) {
		cudaFree(nullptr);
		printf("ready %d\n", getpid());
		fflush(stdout);
		wait_go(true);
	}
	auto *keep = new Network;
	for (int i = 0; i < 3; i++)
		*keep << new Convolution;
	(*keep)(1000);
	for (int i = 0; i < five; i++)
		scratch();
	pool::reserve<short, 64>(16);
	auto table = [](int rows) FRAME { return pool::reserve<int, 128>(rows); };
	table(16);
	for (int i = 0; i < two; i++)
		transfer(5000);
	attempt(1ull << 60);
	puts(expected);
	puts("done");
	fflush(stdout);
	if (wait)
		wait_go(true);
}
