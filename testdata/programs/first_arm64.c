// SPDX-License-Identifier: Apache-2.0
// Calls each function of first_arm64.S N times, and prints "NAME NANOSECONDS" of one call.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ALL(X) X(nop) X(bti) X(paciasp) X(stp) X(sub) X(mov) X(ldr) X(mrs) X(adrp) X(adr) X(b) X(cbz) X(tbz) X(ret) X(literal)
#define DECLARE(name) void first_##name(long);
ALL(DECLARE)
#define ENTRY(name) {#name, first_##name},
static const struct { const char *name; void (*call)(long); } list[] = {ALL(ENTRY)};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1000;
	for (unsigned i = 0; i < sizeof(list) / sizeof(*list); i++) {
		double begin = now();
		for (int k = 0; k < n; k++)
			list[i].call(0);
		printf("%s %.0f\n", list[i].name, (now() - begin) / n);
	}
	return 0;
}
