// SPDX-License-Identifier: Apache-2.0
// What the random programs of cmd/vramprof/test/accuracy have in common. Each function that calls another one first notes where it stands,
// so that at every allocation the program knows its own stack: by construction, without a debugger's or an unwinder's help.
#ifndef WALK_H
#define WALK_H

#include <cstddef>
#include <cstdint>

struct Walk {
	static constexpr int ROOM = 4096;
	// Of one place in a stack: function << 32 | line << 8 | flags.
	uint64_t at[ROOM];
	int depth = 0;
	int left = 0; // calls until the walk allocates
	uint64_t random = 1;

	uint64_t next()
	{
		random ^= random >> 12, random ^= random << 25, random ^= random >> 27;
		return (random * 0x2545f4914f6cdd1dull) >> 16;
	}
	// Which of n places of a function is next: place 0 allocates.
	unsigned choose(unsigned n) { return left-- <= 0 ? 0 : 1 + unsigned(next() % (n - 1)); }
	void push(uint64_t function, uint64_t line, uint64_t flags)
	{
		if (depth < ROOM)
			at[depth] = function << 32 | line << 8 | flags;
		depth++;
	}
};

enum {
	MAYBE = 1,   // a call in tail position: the compiler may have made a jump of it, and the frame is gone
	INLINE = 2,  // compiled into its caller
	FOREIGN = 4, // no frame of ours: what libc or libstdc++ put between
	NOLINE = 8,  // the compiler has no single line for it
	ROOT = 16,   // nothing of ours is further out
};

extern thread_local Walk walk_of_thread;
int take(Walk &);                           // allocates, and notes the stack
int in_library(Walk &, unsigned);           // a function of the library that is loaded when it is first needed
int on_stack_of_its_own(Walk &, int (*)(Walk &)); // a coroutine
int in_signal_handler(Walk &, int (*)(Walk &));
int in_thread(Walk &, int (*)(Walk &));

// Each is one line of the program. The number in the text keeps compilers from merging two places into one.
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
