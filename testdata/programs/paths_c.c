// SPDX-License-Identifier: Apache-2.0
// paths_c DEPTH ROUNDS: allocates on call paths that differ only near main. Above that, all calls
// have the same DEPTH frames at the same stack addresses. Prints a line for each path: "root_N LINE
// COUNT", where LINE is that of the call of root_N in run; then "done".
#include "cudart.h"
#include <stdio.h>
#include <stdlib.h>

#define FRAME __attribute__((noipa))

FRAME static int deep(int depth)
{
	void *p;
	if (depth > 1)
		return deep(depth - 1) + 1;
	if (cudaMalloc(&p, 1) != 0)
		exit(1);
	return 0;
}

FRAME static int root_0(int depth) { return deep(depth) + 10; }
FRAME static int root_1(int depth) { return deep(depth) + 11; }
FRAME static int root_2(int depth) { return deep(depth) + 12; }

static struct path {
	const char *name;
	int line, count;
} paths[6];

// The asm prevents the compiler from merging two calls.
#define CALL(path, root)                                      \
	note(path, #root, __LINE__);                          \
	result = root(depth);                                 \
	__asm__ volatile("" : "+r"(result) : "i"(__LINE__))

FRAME static void note(int path, const char *name, int line)
{
	paths[path].name = name;
	paths[path].line = line;
	paths[path].count++;
}

FRAME static int run(int depth, int path)
{
	int result = 0;
	switch (path) {
	case 0:
		CALL(0, root_0);
		break;
	case 1:
		CALL(1, root_0);
		break;
	case 2:
		CALL(2, root_1);
		break;
	case 3:
		CALL(3, root_1);
		break;
	case 4:
		CALL(4, root_2);
		break;
	case 5:
		CALL(5, root_2);
		break;
	}
	return result;
}

int main(int argc, char **argv)
{
	int depth = argc > 1 ? atoi(argv[1]) : 10, rounds = argc > 2 ? atoi(argv[2]) : 1000;
	unsigned random = 1;
	cudaFree(NULL);
	for (int i = 0; i < rounds; i++) {
		random = random * 1103515245 + 12345;
		run(depth, (int)(random >> 16) % 6);
	}
	for (int i = 0; i < 6; i++)
		printf("%s %d %d\n", paths[i].name, paths[i].line, paths[i].count);
	puts("done");
	return 0;
}
