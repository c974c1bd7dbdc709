// SPDX-License-Identifier: Apache-2.0
// alloc_c [FILE]: executes a script (FILE or stdin), one operation per line:
//
//   malloc NAME SIZE | managed NAME SIZE | free NAME        cudaMalloc, cudaMallocManaged, cudaFree
//   pinned NAME SIZE | mallochost NAME SIZE | freehost NAME cudaHostAlloc, cudaMallocHost, cudaFreeHost
//   driver_malloc NAME SIZE | driver_free NAME              cuMemAlloc_v2, cuMemFree_v2 (dlsym)
//   driver_managed NAME SIZE | driver_pinned NAME SIZE      cuMemAllocManaged, cuMemHostAlloc
//   driver_mallochost NAME SIZE | driver_freehost NAME      cuMemAllocHost_v2, cuMemFreeHost
//   fail SIZE          cudaMalloc that must return 2
//   badfree            cudaFree of an unknown address, must return 1
//   free0 | malloc0    cudaFree(0), cudaMalloc(0)
//   device N | reset   cudaSetDevice, cudaDeviceReset
//   sleep MS | print TEXT | ready ("ready PID") | address NAME (prints it)
//   wait               for SIGUSR1 or, if the script is a FILE, for a line on stdin
//   threads N … end    the block in N threads at once, each with its own names
//   repeat N … end     the block N times
//   exec FILE          execve of itself with another script
//   kill               SIGKILL to itself
//   rename NAME        prctl(PR_SET_NAME)
//
// Stack of every call: main (or thread_main), run_script, op_NAME, level3, level2, level1, API
// function. Exit code 1: an operation failed or succeeded unexpectedly.
#define _GNU_SOURCE
#include "cudart.h"
#include "wait.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define FRAME __attribute__((noipa))
#define MAX_NAMES 4096

enum call { MALLOC, MANAGED, PINNED, MALLOCHOST, FREE, FREEHOST, DRIVER_MALLOC, DRIVER_MANAGED, DRIVER_PINNED, DRIVER_MALLOCHOST, DRIVER_FREE, DRIVER_FREEHOST };

struct script {
	char **line;
	int lines;
	bool from_file;
	char **argv;
	struct { char name[32]; void *address; } block[MAX_NAMES];
	int blocks;
};

static int (*cu_malloc)(uint64_t *, size_t), (*cu_free)(uint64_t), (*cu_managed)(uint64_t *, size_t, unsigned);
static int (*cu_pinned)(void **, size_t, unsigned), (*cu_mallochost)(void **, size_t), (*cu_freehost)(void *);

static void driver_load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "alloc_c: %s\n", dlerror());
		exit(1);
	}
	*(void **)&cu_malloc = dlsym(lib, "cuMemAlloc_v2");
	*(void **)&cu_free = dlsym(lib, "cuMemFree_v2");
	*(void **)&cu_managed = dlsym(lib, "cuMemAllocManaged");
	*(void **)&cu_pinned = dlsym(lib, "cuMemHostAlloc");
	*(void **)&cu_mallochost = dlsym(lib, "cuMemAllocHost_v2");
	*(void **)&cu_freehost = dlsym(lib, "cuMemFreeHost");
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	int (*get)(void **) = (int (*)(void **))dlsym(lib, "cuCtxGetCurrent");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
	int (*set)(void *) = (int (*)(void *))dlsym(lib, "cuCtxSetCurrent");
	void *context = NULL;
	if (init(0) != 0 || get(&context) != 0 || (!context && (retain(&context, 0) != 0 || set(context) != 0))) {
		fprintf(stderr, "alloc_c: no context\n");
		exit(1);
	}
}

FRAME static int level1(enum call call, void **p, size_t size)
{
	switch (call) {
	case MALLOC: return cudaMalloc(p, size);
	case MANAGED: return cudaMallocManaged(p, size, 1);
	case PINNED: return cudaHostAlloc(p, size, 0);
	case MALLOCHOST: return cudaMallocHost(p, size);
	case FREE: return cudaFree(*p);
	case FREEHOST: return cudaFreeHost(*p);
	case DRIVER_MALLOC: return cu_malloc((uint64_t *)p, size);
	case DRIVER_MANAGED: return cu_managed((uint64_t *)p, size, 1);
	case DRIVER_PINNED: return cu_pinned(p, size, 0);
	case DRIVER_MALLOCHOST: return cu_mallochost(p, size);
	case DRIVER_FREE: return cu_free((uint64_t)*p);
	case DRIVER_FREEHOST: return cu_freehost(*p);
	}
	return -1;
}
FRAME static int level2(enum call call, void **p, size_t size) { return level1(call, p, size); }
FRAME static int level3(enum call call, void **p, size_t size) { return level2(call, p, size); }

FRAME static int op_malloc(void **p, size_t n) { return level3(MALLOC, p, n); }
FRAME static int op_managed(void **p, size_t n) { return level3(MANAGED, p, n); }
FRAME static int op_pinned(void **p, size_t n) { return level3(PINNED, p, n); }
FRAME static int op_mallochost(void **p, size_t n) { return level3(MALLOCHOST, p, n); }
FRAME static int op_free(void **p, size_t n) { return level3(FREE, p, n); }
FRAME static int op_freehost(void **p, size_t n) { return level3(FREEHOST, p, n); }
FRAME static int op_driver_malloc(void **p, size_t n) { return level3(DRIVER_MALLOC, p, n); }
FRAME static int op_driver_managed(void **p, size_t n) { return level3(DRIVER_MANAGED, p, n); }
FRAME static int op_driver_pinned(void **p, size_t n) { return level3(DRIVER_PINNED, p, n); }
FRAME static int op_driver_mallochost(void **p, size_t n) { return level3(DRIVER_MALLOCHOST, p, n); }
FRAME static int op_driver_free(void **p, size_t n) { return level3(DRIVER_FREE, p, n); }
FRAME static int op_driver_freehost(void **p, size_t n) { return level3(DRIVER_FREEHOST, p, n); }
FRAME static int op_fail(void **p, size_t n) { return level3(MALLOC, p, n); }
FRAME static int op_badfree(void **p, size_t n) { return level3(FREE, p, n); }
FRAME static int op_free0(void **p, size_t n) { return level3(FREE, p, n); }
FRAME static int op_malloc0(void **p, size_t n) { return level3(MALLOC, p, n); }

enum arguments { NAME_SIZE, NAME, SIZE, NONE };
static const struct operation {
	const char *word;
	int (*run)(void **, size_t);
	enum arguments arguments;
	int expect;
	bool driver;
} operations[] = {
	{"malloc", op_malloc, NAME_SIZE, 0, false}, {"managed", op_managed, NAME_SIZE, 0, false},
	{"pinned", op_pinned, NAME_SIZE, 0, false}, {"mallochost", op_mallochost, NAME_SIZE, 0, false},
	{"free", op_free, NAME, 0, false}, {"freehost", op_freehost, NAME, 0, false},
	{"driver_malloc", op_driver_malloc, NAME_SIZE, 0, true}, {"driver_managed", op_driver_managed, NAME_SIZE, 0, true},
	{"driver_pinned", op_driver_pinned, NAME_SIZE, 0, true}, {"driver_mallochost", op_driver_mallochost, NAME_SIZE, 0, true},
	{"driver_free", op_driver_free, NAME, 0, true}, {"driver_freehost", op_driver_freehost, NAME, 0, true},
	{"fail", op_fail, SIZE, 2, false}, {"badfree", op_badfree, NONE, 1, false},
	{"free0", op_free0, NONE, 0, false}, {"malloc0", op_malloc0, NONE, 0, false},
};

static void die(const char *line, const char *why, int result)
{
	fprintf(stderr, "alloc_c: %s: %s (%d)\n", line, why, result);
	exit(1);
}

static void **find_block(struct script *s, const char *name, bool create)
{
	for (int i = s->blocks - 1; i >= 0; i--)
		if (strcmp(s->block[i].name, name) == 0)
			return &s->block[i].address;
	if (!create || s->blocks == MAX_NAMES)
		return NULL;
	snprintf(s->block[s->blocks].name, sizeof s->block->name, "%s", name);
	return &s->block[s->blocks++].address;
}

static int block_end(struct script *s, int at, int end)
{
	int open = 1;
	while (++at < end) {
		open += strncmp(s->line[at], "threads ", 8) == 0 || strncmp(s->line[at], "repeat ", 7) == 0;
		open -= strcmp(s->line[at], "end") == 0;
		if (!open)
			return at;
	}
	die("end", "missing", 0);
	return end;
}

static void run_script(struct script *s, int from, int to);

struct thread {
	pthread_t id;
	struct script *script;
	int from, to;
};

FRAME static void *thread_main(void *argument)
{
	struct thread *t = argument;
	run_script(t->script, t->from, t->to);
	return NULL;
}

static void run_threads(struct script *s, int n, int from, int to)
{
	struct thread *t = calloc((size_t)n, sizeof *t);
	for (int i = 0; i < n; i++) {
		struct script *own = malloc(sizeof *own);
		*own = *s; // sees the parent's names, keeps its own
		t[i] = (struct thread){.script = own, .from = from, .to = to};
		if (pthread_create(&t[i].id, NULL, thread_main, &t[i]) != 0)
			die("threads", "cannot start", i);
	}
	for (int i = 0; i < n; i++) {
		pthread_join(t[i].id, NULL);
		free(t[i].script);
	}
	free(t);
}

static bool run_control(struct script *s, const char *line, const char *word, const char *rest)
{
	struct timespec pause = {atol(rest) / 1000, atol(rest) % 1000 * 1000000};
	if (!strcmp(word, "sleep"))
		nanosleep(&pause, NULL);
	else if (!strcmp(word, "rename"))
		prctl(PR_SET_NAME, rest);
	else if (!strcmp(word, "print"))
		puts(rest), fflush(stdout);
	else if (!strcmp(word, "ready"))
		printf("ready %d\n", getpid()), fflush(stdout);
	else if (!strcmp(word, "wait"))
		wait_go(s->from_file);
	else if (!strcmp(word, "kill"))
		kill(getpid(), SIGKILL);
	else if (!strcmp(word, "exec"))
		execl("/proc/self/exe", s->argv[0], rest, (char *)NULL), die(line, "exec", 0);
	else if (!strcmp(word, "device") || !strcmp(word, "reset")) {
		int result = *word == 'd' ? cudaSetDevice(atoi(rest)) : cudaDeviceReset();
		if (result)
			die(line, "result", result);
	} else if (!strcmp(word, "address")) {
		void **p = find_block(s, rest, false);
		if (!p)
			die(line, "no such block", 0);
		printf("%s 0x%" PRIx64 "\n", rest, (uint64_t)*p), fflush(stdout);
	} else
		return false;
	return true;
}

FRAME static void run_script(struct script *s, int from, int to)
{
	for (int i = from; i < to; i++) {
		char word[32] = "", name[32] = "";
		int at = 0;
		const char *line = s->line[i];
		if (sscanf(line, "%31s %n", word, &at) < 1 || *word == '#')
			continue;
		const char *rest = line + at;
		if (!strcmp(word, "threads") || !strcmp(word, "repeat")) {
			int end = block_end(s, i, to);
			if (*word == 't')
				run_threads(s, atoi(rest), i + 1, end);
			for (int n = *word == 'r' ? atoi(rest) : 0; n > 0; n--)
				run_script(s, i + 1, end);
			i = end;
			continue;
		}
		if (run_control(s, line, word, rest))
			continue;
		const struct operation *op = NULL;
		for (size_t k = 0; k < sizeof operations / sizeof *operations; k++)
			if (!strcmp(operations[k].word, word))
				op = &operations[k];
		if (!op)
			die(line, "unknown operation", 0);
		void *anonymous = op->run == op_badfree ? (void *)0xdead000000123400 : NULL, **p = &anonymous;
		unsigned long long size = 0;
		if (op->arguments == SIZE)
			size = strtoull(rest, NULL, 0);
		else if (op->arguments == NAME_SIZE && sscanf(rest, "%31s %lli", name, (long long *)&size) != 2)
			die(line, "expected NAME SIZE", 0);
		else if (op->arguments == NAME)
			sscanf(rest, "%31s", name);
		if (*name && !(p = find_block(s, name, op->arguments == NAME_SIZE)))
			die(line, "no such block", 0);
		if (op->driver && !cu_malloc)
			driver_load();
		int result = op->run(p, size);
		if (result != op->expect)
			die(line, "result", result);
	}
}

static struct script *read_script(FILE *in)
{
	struct script *s = calloc(1, sizeof *s);
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	while ((n = getline(&line, &room, in)) > 0) {
		while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == ' '))
			line[--n] = 0;
		s->line = realloc(s->line, sizeof *s->line * (size_t)(s->lines + 1));
		s->line[s->lines++] = strdup(line + strspn(line, " \t"));
	}
	free(line);
	return s;
}

int main(int argc, char **argv)
{
	wait_prepare();
	FILE *in = argc > 1 ? fopen(argv[1], "re") : stdin;
	if (!in) {
		perror(argv[1]);
		return 1;
	}
	struct script *s = read_script(in);
	s->from_file = argc > 1;
	s->argv = argv;
	run_script(s, 0, s->lines);
	return 0;
}
