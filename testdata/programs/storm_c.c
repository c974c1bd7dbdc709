// SPDX-License-Identifier: Apache-2.0
// storm_c WHAT …: many threads, processes or exits at once. Each prints "ready PID" before it
// starts, waits for a line, and prints "done" afterwards. Exit code 1: something failed.
//
//   threads N          N threads at once, each allocates 1000 and 24 bytes and frees the 24; then
//                      "allocated", waits for a line, and each frees its 1000
//   churn N AT_ONCE    N threads, AT_ONCE at a time, that each do what "once" does
//   forks N AT_ONCE    the same with N forked children
//   execs N AT_ONCE    the same with fork and execve of itself
//   vforks N           N children by vfork and execve, while four threads allocate and free
//   within exit|exec   four threads allocate and free forever; after a line, a fifth ends the
//                      process, or executes "once" in its place
//   once               allocates 1000 and 2000 bytes, frees the 1000, and exits; without a wait
#define _GNU_SOURCE
#include "cudart.h"
#include "wait.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;
static const size_t stack_size = 64 << 10;
static pthread_barrier_t together;
static atomic_int calls;

static void die(const char *what, int code)
{
	fprintf(stderr, "storm_c: %s (%d)\n", what, code);
	_exit(1);
}

static void *allocate(size_t size)
{
	void *p = NULL;
	int result = cudaMalloc(&p, size);
	if (result)
		die("cudaMalloc", result);
	return p;
}

static void give_back(void *p)
{
	int result = cudaFree(p);
	if (result)
		die("cudaFree", result);
}

static void say(const char *text) { puts(text), fflush(stdout); }

static void once(void)
{
	void *p = allocate(1000);
	allocate(2000);
	give_back(p);
}

static pthread_t begin(void *(*run)(void *), void *argument)
{
	pthread_t thread;
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, stack_size);
	int result = pthread_create(&thread, &attributes, run, argument);
	if (result)
		die("pthread_create", result);
	return thread;
}

static void *one_of_many(void *unused)
{
	pthread_barrier_wait(&together);
	void *kept = allocate(1000), *p = allocate(24);
	give_back(p);
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	give_back(kept);
	return unused;
}

static void threads(int n)
{
	pthread_t *all = calloc((size_t)n, sizeof *all);
	pthread_barrier_init(&together, NULL, (unsigned)n + 1);
	for (int i = 0; i < n; i++)
		all[i] = begin(one_of_many, NULL);
	printf("ready %d\n", getpid()), fflush(stdout);
	wait_go(true);
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	say("allocated");
	wait_go(true);
	pthread_barrier_wait(&together);
	for (int i = 0; i < n; i++)
		pthread_join(all[i], NULL);
}

static void *short_lived(void *unused)
{
	once();
	return unused;
}

static void churn(int n, int at_once)
{
	pthread_t *running = calloc((size_t)at_once, sizeof *running);
	for (int i = 0; i < n + at_once; i++) {
		if (i >= at_once)
			pthread_join(running[i % at_once], NULL);
		if (i < n)
			running[i % at_once] = begin(short_lived, NULL);
	}
}

static char self[4096]; // path of this program; its children keep the name
static char *const again[] = {self, "once", NULL};

static void reap(void)
{
	int status;
	if (wait(&status) < 0 || status != 0)
		die("a child", status);
}

static void children(int n, int at_once, bool exec)
{
	for (int i = 0; i < n + at_once; i++) {
		if (i >= at_once)
			reap();
		if (i >= n)
			continue;
		pid_t child = fork();
		if (child < 0)
			die("fork", errno);
		if (child == 0 && exec)
			execve(self, again, environ), die("execve", errno);
		if (child == 0) {
			once();
			_exit(0);
		}
	}
}

static void *restless(void *unused)
{
	for (;;) {
		give_back(allocate(100));
		calls++;
	}
	return unused;
}

static void busy(void)
{
	for (int i = 0; i < 4; i++)
		begin(restless, NULL);
	while (calls < 100)
		usleep(1000);
}

static void *end_all(void *how)
{
	if (!strcmp(how, "exit"))
		_exit(0);
	execve(self, again, environ);
	die("execve", errno);
	return NULL;
}

static void vforks(int n)
{
	for (volatile int i = 0; i < n; i++) {
		pid_t child = vfork();
		if (child < 0)
			die("vfork", errno);
		if (child == 0) {
			execve(self, again, environ);
			_exit(1);
		}
		reap();
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 0, at_once = argc > 3 ? atoi(argv[3]) : 1;
	if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
		die("readlink", errno);
	if (!strcmp(what, "once")) {
		once();
		return 0;
	}
	wait_prepare();
	if (!strcmp(what, "within") || !strcmp(what, "vforks"))
		busy();
	if (strcmp(what, "threads")) {
		printf("ready %d\n", getpid()), fflush(stdout);
		wait_go(true);
	}
	if (!strcmp(what, "threads"))
		threads(n);
	else if (!strcmp(what, "churn"))
		churn(n, at_once);
	else if (!strcmp(what, "forks") || !strcmp(what, "execs"))
		children(n, at_once, *what == 'e');
	else if (!strcmp(what, "vforks"))
		vforks(n);
	else if (!strcmp(what, "within"))
		pthread_join(begin(end_all, argv[2]), NULL);
	else
		die("what?", 0);
	say("done");
	wait_go(true);
	_exit(0);
}
