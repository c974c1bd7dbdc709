// SPDX-License-Identifier: Apache-2.0
// Shared by the random programs of cmd/vramprof/test/accuracy. Each function notes its position
// before it calls another one. So the program knows its own stack at every allocation by
// construction, without a debugger or an unwinder.
#ifndef WALK_H
#define WALK_H

#include <cstddef>
#include <cstdint>

struct Walk {
	static constexpr int ROOM = 4096;
	// The positions in the stack, each function << 32 | line << 8 | flags.
	uint64_t at[ROOM];
	int depth = 0;
	int left = 0; // calls until the walk allocates
	uint64_t random = 1;

	uint64_t next()
	{
		random ^= random >> 12, random ^= random << 25, random ^= random >> 27;
		return (random * 0x2545f4914f6cdd1dull) >> 16;
	}
	// Selects the next of n places of a function: place 0 allocates.
	unsigned choose(unsigned n) { return left-- <= 0 ? 0 : 1 + unsigned(next() % (n - 1)); }
	void push(uint64_t function, uint64_t line, uint64_t flags)
	{
		if (depth < ROOM)
			at[depth] = function << 32 | line << 8 | flags;
		depth++;
	}
};

enum {
	MAYBE = 1,   // a call in tail position: the compiler may turn it into a jump, without a frame
	INLINE = 2,  // compiled into its caller
	FOREIGN = 4, // a frame of libc or libstdc++ in between
	NOLINE = 8,  // the compiler assigns no single line to it
	ROOT = 16,   // the outermost function of the program
};

extern thread_local Walk walk_of_thread;
int take(Walk &);                           // allocates and notes the stack
int in_library(Walk &, unsigned);           // a function of the library, which is loaded when first needed
int on_stack_of_its_own(Walk &, int (*)(Walk &)); // a coroutine
int in_signal_handler(Walk &, int (*)(Walk &));
int in_thread(Walk &, int (*)(Walk &));

// Each is one line of the program. The number in the text prevents compilers from merging two
// places.
#define HERE(what) asm volatile("nop # " what " %0" : : "i"(__LINE__) : "memory")
#define CALL_AS(flags, x)                          \
	({                                         \
		int depth_ = w.depth;              \
		w.push(ID, __LINE__, flags);       \
		HERE("to");                        \
		int result_ = (x);                 \
		HERE("from");                      \
		w.depth = depth_;                  \
		result_;                           \
	})
#define CALL(x) CALL_AS(KIND, x)
#define CALL_THROUGH(x) ({ int outer_ = w.depth; w.push(ID, __LINE__, KIND); w.push(0, 0, FOREIGN); HERE("to"); int value_ = (x); HERE("from"); w.depth = outer_; value_; })
#define TAIL(x) ({ w.push(ID, __LINE__, KIND | MAYBE); (x); })

#endif
