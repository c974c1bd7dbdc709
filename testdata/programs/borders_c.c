// SPDX-License-Identifier: Apache-2.0
// borders_c COUNT: allocates COUNT times on each of two stacks that end at unmapped memory, in turns.
// Both calls have the same registers, but the memory above the shallow stack is what the deep stack
// needs. It prints "ready PID", waits for a line, allocates, prints "done" and waits for a line again.
#include "cudart.h"
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FRAME __attribute__((noipa))
enum { PAGE = 4096, ROOM = 64 * PAGE /* for NVIDIA's runtime */, DEEP = ROOM + 3 * PAGE, SHALLOW = ROOM + PAGE };

static char *memory;

// allocate calls cudaMalloc with the same stack pointer on both stacks.
FRAME static void allocate(void)
{
	char here;
	void *p;
	volatile char *room = alloca(&here - (memory + ROOM));
	*room = 0;
	if (cudaMalloc(&p, 1))
		exit(1);
	*room = 1;
}

FRAME static void deep(void)
{
	allocate();
	__asm__ volatile("");
}

FRAME static void shallow(void)
{
	allocate();
	__asm__ volatile("");
}

// call runs a function on another stack; its own frame is found by the frame pointer.
FRAME __attribute__((optimize("no-omit-frame-pointer"))) static void call(void (*function)(void), char *top)
{
#if defined(__x86_64__)
	__asm__ volatile("mov %%rsp, %%rbx\n mov %1, %%rsp\n call *%0\n mov %%rbx, %%rsp"
			 : : "r"(function), "r"(top)
			 : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
#else
	__asm__ volatile("mov x19, sp\n mov sp, %1\n blr %0\n mov sp, x19"
			 : : "r"(function), "r"(top)
			 : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
			   "x16", "x17", "x18", "x19", "x30", "cc", "memory");
#endif
}

static void on_stack(size_t size, void (*function)(void))
{
	if (mmap(memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		exit(1);
	call(function, memory + size);
	munmap(memory, size);
}

int main(int argc, char **argv)
{
	char line[8];
	memory = mmap(NULL, 128 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cudaFree(NULL); // loads the driver, which changes the key of walks
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (memory == MAP_FAILED || !fgets(line, sizeof line, stdin))
		return 1;
	munmap(memory, 128 * PAGE);
	for (long i = 0; i < atol(argv[argc - 1]); i++) {
		on_stack(DEEP, deep);
		on_stack(SHALLOW, shallow);
	}
	puts("done");
	fflush(stdout);
	return fgets(line, sizeof line, stdin) ? 0 : 1;
}
