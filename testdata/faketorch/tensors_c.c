// SPDX-License-Identifier: Apache-2.0
// tensors_c [FILE]: executes a script (FILE or stdin) on the fake caching allocator, one line at a
// time:
//
//   alloc NAME SIZE [DEVICE] | free NAME | empty_cache
//   site N                     site_N makes the following allocations, 0 to 7; initially 0
//   oom SIZE [DEVICE]          an allocation that must fail
//   flood SIZE COUNT           the same COUNT times
//   cpu NAME SIZE | cpu_free NAME | mapped NAME SIZE | mapped_free NAME   on the host
//   foreign NAME SIZE | foreign_free NAME | foreign_oom SIZE   by a library that is not PyTorch's
//   lie ALLOCATED RESERVED     adds to the totals that are reported from now on
//   random SEED CALLS [DEVICES]   random allocations and frees; what is live at the end stays live
//   free_random N              frees one in N of those; N = 1 frees all
//   live COUNT [SIZE]          allocates COUNT tensors at once
//   rate THREADS SECONDS [EVENTS_PER_SECOND [SIZE]]   alloc/free pairs; prints "rate EVENTS NS"
//   totals                     a line for each device that was used (print_totals), and "end"
//   mark                       the last numbers of those lines count from here
//   sites                      "site_N DEVICE LIVE BYTES ALLOCS BYTES" for each used site, and "end"
//   sleep MS | print TEXT | ready ("ready PID") | kill (SIGKILL to itself) | exit (immediately)
//   fork NAME                  a child frees its inherited tensor and stays; prints "forked PID"
//   workers N SIZE             like a data loader's: N children with a tensor in shared memory each; prints "workers N"
//   workers_end                all of them end at once; prints "workers 0"
//   asleep | awake             torch_sleep
//   exec FILE                  execve of itself with another script
//   wait                       for SIGUSR1 or, if the script is a FILE, for a line on stdin
//   threads N … end            the block in N threads at once, each with its own names
//   repeat N … end             the block N times
//
// Stack of every allocation: main or thread_main, run_script, …, site_N, torch_alloc. Exit code 1:
// an operation failed or succeeded unexpectedly. Blocks are multiples of 512 bytes; with
// FAKETORCH_EXPANDABLE=1, segments are pages mapped into one range.
#include "tensors_c.h"
#include "../programs/wait.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define MAX_NAMES 4096

int foreign_take(void **, size_t);
int foreign_give(void *);

struct script {
	char **line, **argv;
	int lines;
	bool from_file;
	int site;
	struct name {
		char name[32];
		void *p;
		size_t size;
		int site, device;
	} name[MAX_NAMES];
	int names;
};

void die(const char *line, const char *why, long number)
{
	fprintf(stderr, "tensors_c: %s: %s (%ld)\n", line, why, number);
	exit(1);
}

static size_t size_in(const char *word, const char *line)
{
	char *end;
	size_t n = strtoull(word, &end, 0);
	unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
	if (end == word || end[shift != 0])
		die(line, "missing size", 0);
	return n << shift;
}

static struct name *new_name(struct script *s, const char *name, const char *line)
{
	if (s->names == MAX_NAMES)
		die(line, "too many names", MAX_NAMES);
	struct name *n = &s->name[s->names++];
	snprintf(n->name, sizeof n->name, "%s", name);
	return n;
}

static struct name take_name(struct script *s, const char *name, const char *line)
{
	for (int i = s->names - 1; i >= 0; i--)
		if (strcmp(s->name[i].name, name) == 0) {
			struct name found = s->name[i];
			s->name[i] = s->name[--s->names];
			return found;
		}
	die(line, "no such name", 0);
}

static void print_totals(void)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		struct totals t;
		torch_totals(d, &t);
		if (t.peak || t.failures)
			printf("device %d %zu %zu %zu %zu %zu %zu %zu since %zu %zu %zu %zu %zu\n", d, t.allocated, t.reserved, t.live, t.largest, t.peak,
			       t.retries, t.failures, t.since.allocated, t.since.live, t.since.segments, t.since.cached, t.since.largest);
	}
	puts("end"), fflush(stdout);
}

FRAME static bool run_tensor(struct script *s, const char *line, const char *word, char *rest)
{
	char first[32] = "", second[32] = "";
	int device = 0;
	sscanf(rest, "%31s %31s %d", first, second, &device);
	if (!strcmp(word, "alloc")) {
		struct name *n = new_name(s, first, line);
		n->site = s->site, n->device = device;
		if (!(n->p = take(s->site, size_in(second, line), device, &n->size)))
			die(line, "out of memory", 0);
	} else if (!strcmp(word, "free")) {
		struct name n = take_name(s, first, line);
		give(n.p, n.site, n.device);
	} else if (!strcmp(word, "oom")) {
		if (take_only(s->site, size_in(first, line), atoi(second)))
			die(line, "the allocation succeeded", 0);
	} else if (!strcmp(word, "flood")) {
		for (int i = atoi(second); i > 0; i--)
			if (take_only(s->site, size_in(first, line), 0))
				die(line, "the allocation succeeded", i);
	} else if (!strcmp(word, "cpu") || !strcmp(word, "mapped")) {
		struct name *n = new_name(s, first, line);
		n->size = size_in(second, line);
		n->p = torch_cpu_alloc(n->size, *word == 'm');
	} else if (!strcmp(word, "cpu_free") || !strcmp(word, "mapped_free")) {
		struct name n = take_name(s, first, line);
		torch_cpu_free(n.p, n.size, *word == 'm');
	} else if (!strcmp(word, "foreign")) {
		struct name *n = new_name(s, first, line);
		int result = foreign_take(&n->p, size_in(second, line));
		if (result)
			die(line, "result", result);
	} else if (!strcmp(word, "foreign_free")) {
		foreign_give(take_name(s, first, line).p);
	} else if (!strcmp(word, "foreign_oom")) {
		void *p;
		int result = foreign_take(&p, size_in(first, line));
		if (result != 2)
			die(line, "the allocation succeeded", result);
	} else
		return false;
	return true;
}

// run_fork: the child ends with the program and makes no CUDA call.
static void run_fork(struct script *s, const char *name, const char *line)
{
	char done;
	int ends[2];
	if (pipe(ends) != 0)
		die(line, "pipe", 0);
	struct name n = take_name(s, name, line);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		torch_free(n.p);
		if (write(ends[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	if (child < 0 || read(ends[0], &done, 1) != 1)
		die(line, "fork", child);
	printf("forked %d\n", child), fflush(stdout);
}

static int workers[2]; // a pipe: they end when it has no writer

static void run_workers(const char *rest, const char *line)
{
	int n = 0;
	char size[32] = "", done;
	int began[2];
	sscanf(rest, "%d %31s", &n, size);
	if (pipe(began) != 0 || pipe(workers) != 0)
		die(line, "pipe", 0);
	for (int i = 0; i < n; i++) {
		pid_t child = fork();
		if (child < 0)
			die(line, "fork", i);
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(workers[1]);
			torch_cpu_alloc(size_in(size, line), true);
			if (write(began[1], "", 1) == 1)
				(void)!read(workers[0], &done, 1);
			_exit(0);
		}
	}
	for (int i = 0; i < n; i++)
		if (read(began[0], &done, 1) != 1)
			die(line, "a worker ended", i);
	close(began[0]), close(began[1]), close(workers[0]);
	printf("workers %d\n", n), fflush(stdout);
}

static void end_workers(void)
{
	close(workers[1]);
	while (wait(NULL) > 0)
		;
	puts("workers 0"), fflush(stdout);
}

static bool run_control(struct script *s, const char *line, const char *word, char *rest)
{
	long allocated = 0, reserved = 0;
	if (!strcmp(word, "site"))
		s->site = atoi(rest) % SITES;
	else if (!strcmp(word, "empty_cache"))
		torch_empty_cache();
	else if (!strcmp(word, "asleep") || !strcmp(word, "awake"))
		torch_sleep(word[1] == 'w');
	else if (!strcmp(word, "mark"))
		torch_mark();
	else if (!strcmp(word, "lie")) {
		sscanf(rest, "%ld %ld", &allocated, &reserved);
		torch_lie(allocated, reserved);
	} else if (!strcmp(word, "random"))
		run_random(rest, line);
	else if (!strcmp(word, "free_random"))
		free_random(rest, line);
	else if (!strcmp(word, "live"))
		run_live(rest, line);
	else if (!strcmp(word, "rate"))
		run_rate(rest, line);
	else if (!strcmp(word, "totals"))
		print_totals();
	else if (!strcmp(word, "sites"))
		print_sites();
	else if (!strcmp(word, "sleep"))
		nanosleep(&(struct timespec){atol(rest) / 1000, atol(rest) % 1000 * 1000000}, NULL);
	else if (!strcmp(word, "print"))
		puts(rest), fflush(stdout);
	else if (!strcmp(word, "ready"))
		printf("ready %d\n", getpid()), fflush(stdout);
	else if (!strcmp(word, "wait"))
		wait_go(s->from_file);
	else if (!strcmp(word, "kill"))
		kill(getpid(), SIGKILL);
	else if (!strcmp(word, "exit"))
		_exit(0);
	else if (!strcmp(word, "fork"))
		run_fork(s, rest, line);
	else if (!strcmp(word, "workers"))
		run_workers(rest, line);
	else if (!strcmp(word, "workers_end"))
		end_workers();
	else if (!strcmp(word, "exec")) {
		char *argv[] = {s->argv[0], rest, NULL};
		execv("/proc/self/exe", argv);
		die(line, "exec", 0);
	} else
		return false;
	return true;
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
		*own = *s;
		own->site = i % SITES;
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

FRAME static void run_script(struct script *s, int from, int to)
{
	for (int i = from; i < to; i++) {
		char word[32] = "";
		char *line = s->line[i];
		int used = 0;
		if (sscanf(line, "%31s %n", word, &used) < 1 || *word == '#')
			continue;
		char *rest = line + used;
		if (!strcmp(word, "threads") || !strcmp(word, "repeat")) {
			int end = block_end(s, i, to);
			if (*word == 't')
				run_threads(s, atoi(rest), i + 1, end);
			for (int n = *word == 'r' ? atoi(rest) : 0; n > 0; n--)
				run_script(s, i + 1, end);
			i = end;
		} else if (!run_tensor(s, line, word, rest) && !run_control(s, line, word, rest))
			die(line, "unknown", 0);
	}
}

int main(int argc, char **argv)
{
	struct script *s = calloc(1, sizeof *s);
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	wait_prepare();
	FILE *in = argc > 1 ? fopen(argv[1], "re") : stdin;
	if (!in) {
		perror(argv[1]);
		return 1;
	}
	s->argv = argv;
	s->from_file = argc > 1;
	while ((n = getline(&line, &room, in)) > 0) {
		while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == ' '))
			line[--n] = 0;
		s->line = realloc(s->line, sizeof *s->line * (size_t)(s->lines + 1));
		s->line[s->lines++] = strdup(line + strspn(line, " \t"));
	}
	free(line);
	run_script(s, 0, s->lines);
	return 0;
}
