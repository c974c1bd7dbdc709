// SPDX-License-Identifier: Apache-2.0
// marked_c COUNT: allocates COUNT times below frames whose pages have no access rights at that moment, as
// automatic NUMA balancing marks pages; then COUNT times below a huge page. It prints "ready PID", waits for a
// line, allocates, prints how many of the pages were huge and "done", and waits again.
#include "cudart.h"
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FRAME __attribute__((noipa))
enum { HUGE_PAGE = 2 << 20 };

static char *outer; // the huge page with the outer frames; the one below it has the inner ones

static void mark(int rights)
{
	if (mprotect(outer, HUGE_PAGE, rights))
		exit(1);
}

FRAME static void allocate(void)
{
	void *p;
	mark(PROT_NONE);
	int error = cudaMalloc(&p, 1);
	mark(PROT_READ | PROT_WRITE);
	if (error)
		exit(1);
}

FRAME static void step_down(void)
{
	char here;
	volatile char *room = alloca(&here - outer + 4096); // allocate's frame is in the page below
	*room = 0;
	allocate();
	*room = 1;
}

FRAME static void level(int depth)
{
	volatile char frame[1024];
	memset((char *)frame, depth, sizeof frame);
	if (depth)
		level(depth - 1);
	else
		step_down();
	frame[0] = 1;
}

FRAME static void small_pages(void)
{
	level(5);
	__asm__ volatile("");
}

FRAME static void huge_page(void)
{
	level(5);
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

// prepare maps both pages anew, and reports whether the upper one is huge.
static int prepare(int advice)
{
	static char *mapped;
	char line[256];
	int huge = 0, inside = 0;
	if (mapped)
		munmap(mapped, 4L * HUGE_PAGE);
	mapped = mmap(NULL, 4L * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped == MAP_FAILED)
		exit(1);
	outer = (char *)(((unsigned long)mapped + 2L * HUGE_PAGE) & ~(HUGE_PAGE - 1UL));
	madvise(mapped, 4L * HUGE_PAGE, advice);
	outer[0] = outer[HUGE_PAGE - 1] = 1;
	FILE *f = fopen("/proc/self/smaps", "r");
	while (f && fgets(line, sizeof line, f)) {
		unsigned long begin, end, size;
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = begin <= (unsigned long)outer && (unsigned long)outer < end;
		else if (inside && sscanf(line, "AnonHugePages: %lu", &size) == 1)
			huge = size > 0;
	}
	if (f)
		fclose(f);
	return huge;
}

int main(int argc, char **argv)
{
	char line[8];
	long count = atol(argv[argc - 1]);
	cudaFree(NULL); // loads the driver, which changes the key of walks
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	prepare(MADV_NOHUGEPAGE);
	for (long i = 0; i < count; i++)
		call(small_pages, outer + HUGE_PAGE - 64);
	int huge = prepare(MADV_HUGEPAGE);
	for (long i = 0; i < count; i++)
		call(huge_page, outer + HUGE_PAGE - 64);
	printf("%d huge pages\ndone\n", huge);
	fflush(stdout);
	return fgets(line, sizeof line, stdin) ? 0 : 1;
}
