// SPDX-License-Identifier: Apache-2.0
// jit_c: calls cudaMalloc(4096) five times from code that it generated, as a JIT compiler does:
// named in /tmp/perf-PID.map, with a frame pointer. It prints "ready PID" and waits, prints "done"
// and waits again. With --wait, it generates the code only after the first wait. x86-64 only.
//
// Stack of every call: main, call, jitted_outer, inner, cudaMalloc.
#define _GNU_SOURCE
#include "cudart.h"
#include "wait.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FRAME __attribute__((noipa))

// push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
static char map_name[64];

static void remove_map(void) { unlink(map_name); }

static void *compile(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		exit(1);
	memcpy(page, code, sizeof code);
	snprintf(map_name, sizeof map_name, "/tmp/perf-%d.map", getpid());
	FILE *map = fopen(map_name, "we");
	if (!map || fprintf(map, "%lx %zx jitted_outer\n", (unsigned long)page, sizeof code) < 0 || fclose(map) != 0)
		exit(1);
	atexit(remove_map);
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0)
		exit(1);
	return page;
}

FRAME static int inner(void)
{
	void *p;
	return cudaMalloc(&p, 4096);
}

FRAME static void call(void *outer)
{
	for (int i = 0; i < 5; i++)
		if (((int (*)(int (*)(void)))outer)(inner) != 0)
			exit(1);
}

int main(int argc, char **argv)
{
	wait_prepare();
	cudaFree(NULL);
	bool late = argc > 1 && strcmp(argv[1], "--wait") == 0;
	void *outer = late ? NULL : compile();
	printf("ready %d\n", getpid()), fflush(stdout);
	wait_go(true);
	if (late) {
		outer = compile();
		puts("compiled"), fflush(stdout);
		wait_go(true);
	}
	call(outer);
	puts("done"), fflush(stdout);
	wait_go(true);
	return 0;
}
