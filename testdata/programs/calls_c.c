// SPDX-License-Identifier: Apache-2.0
// calls_c [FILE]: executes a script (FILE or stdin), one call per line:
//
//   [!N] FUNCTION ARGUMENT…    e.g. "cudaMallocAsync p 4K", "!2 cuMemAlloc_v2 p 900G"
//
// calls.h lists the functions and their arguments. Outputs are stored under the given names and can
// be inputs of later calls. The call must return 0, or N. Runtime functions are linked; driver
// functions (cu…) come from dlsym. Before a thread's first driver call, device 0's context becomes
// current if the thread has none, unless the call itself is about contexts or devices.
//
//   host NAME SIZE             the program's own memory, for …HostRegister
//   add NAME FROM NUMBER       NAME = FROM + NUMBER
//   is NAME NUMBER             fails if it is not
//   value NAME                 prints "NAME NUMBER"
//   sleep MS | print TEXT | ready ("ready PID") | kill (SIGKILL to itself)
//   wait                       for SIGUSR1 or, if the script is a FILE, for a line on stdin
//   threads N … end            the block in N threads at once, each with its own names
//   repeat N … end             the block N times
//
// calls_c --random SEED CALLS [--threads N] [--gpus N] [--stops N] [--share FOLDER] [--no-contexts]
// [--free] [--wait]: CALLS random valid sequences over all kinds, all GPUs and N threads. What is
// live at the end stays live, unless --free is given. It prints "random SEED CALLS done" and, with
// --wait, waits as above. --stops: N times, before the first call and then after equal parts, it
// prints "random stop I" and waits for a line on stdin. --share: it also shares memory with other
// processes with the same FOLDER; none may exit before all are done. --no-contexts: it creates no
// contexts.
//
// Stack of every call: main or thread_main, run_script or run_random, call, the function. Exit code
// 1: a call returned an unexpected result.
#include "calls_c.h"
#include "wait.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MAX_NAMES 1024
#define WORDS 8
#define FRAME __attribute__((noipa))

struct name {
	char name[40];
	uint64_t value;
};
struct script {
	char **line;
	int lines;
	bool from_file;
	struct name name[MAX_NAMES];
	int names;
};

static uint64_t *find(struct script *s, const char *name, bool create)
{
	for (int i = s->names - 1; i >= 0; i--)
		if (strcmp(s->name[i].name, name) == 0)
			return &s->name[i].value;
	if (!create || s->names == MAX_NAMES)
		return NULL;
	snprintf(s->name[s->names].name, sizeof s->name->name, "%s", name);
	return &s->name[s->names++].value;
}

static uint64_t input(struct script *s, const char *word, const char *line)
{
	if (*word >= '0' && *word <= '9')
		return number(word, line);
	uint64_t *p = find(s, word, false);
	if (!p)
		die(line, "no such name", 0);
	return *p;
}

struct words {
	char *word, *state;
};

static const char *next_word(struct words *w, const char *line)
{
	const char *word = w->word;
	if (!word)
		die(line, "too few arguments", 0);
	w->word = strtok_r(NULL, " ", &w->state);
	return word;
}

// node fills a CUgraphNodeParams.
static void node(struct script *s, struct slot *slot, struct words *words, const char *line)
{
	if (!strcmp(slot->word, "free")) {
		put32(slot, 0, 11), put64(slot, 16, input(s, next_word(words, line), line));
		return;
	}
	if (!strcmp(slot->word, "kernel"))
		return;
	put32(slot, 0, 10), put32(slot, 16, 1), put32(slot, 24, 1);
	put32(slot, 28, number(next_word(words, line), line));
	put64(slot, 120, number(next_word(words, line), line));
}

static void prepare(struct script *s, struct slot *slot, char letter, struct words *words, const char *line, uint64_t *argument)
{
	*argument = (uint64_t)&slot->u;
	switch (letter) {
	case 'q': case 'Q': return;
	case 'u': *argument = words->word ? number(next_word(words, line), line) : 0; return;
	case '0': case '1': case '2': case '4': *argument = (uint64_t)(letter - '0'); return;
	}
	slot->word = next_word(words, line);
	switch (letter) {
	case 'o': case 'O': case 'D': case 'H': case 'W': break;
	case 'i': *argument = input(s, slot->word, line); break;
	case 's': *argument = number(slot->word, line); break;
	case 'v': slot->u.word64 = number(slot->word, line); break;
	case 'h': case 'G': read_file(slot->word, line, slot->u.bytes, 64); break;
	case 'w': *argument = (uint64_t)open_shared(slot->word, line); break;
	case 'N':
		put32(slot, 0, 1), put32(slot, 8, 1);
		put32(slot, 12, number(next_word(words, line), line));
		put64(slot, 104, number(next_word(words, line), line));
		break;
	case 'K': node(s, slot, words, line); break;
	case 'Z': code(slot, number(next_word(words, line), line)); break;
	default: structure(slot, letter, line);
	}
}

static void keep(struct script *s, const struct slot *slot, char letter, const struct slot *first, const char *line)
{
	char text[64];
	uint64_t value = slot->u.word64;
	const char *name = slot->word;
	switch (letter) {
	case 'O': value = slot->u.word32; break;
	case 'o': break;
	case 'Q': value = slot->u.word32; // fall through
	case 'q': snprintf(text, sizeof text, "%.40s.pitch", first->word), name = text; break;
	case 'D': value = (uint64_t)slot->u.pitched.pointer; break;
	case 'N': memcpy(&value, slot->u.bytes + 112, 8); break;
	case 'K':
		if (slot->u.word32 != 10)
			return;
		memcpy(&value, slot->u.bytes + 128, 8);
		break;
	case 'H': write_file(slot->word, line, slot->u.bytes, 64); return;
	case 'W':
		snprintf(text, sizeof text, "/proc/%d/fd/%u", getpid(), slot->u.word32);
		write_file(slot->word, line, text, strlen(text));
		return;
	default: return;
	}
	uint64_t *to = find(s, name, true);
	if (!to)
		die(line, "too many names", MAX_NAMES);
	*to = value;
	if (letter == 'D') {
		snprintf(text, sizeof text, "%.40s.pitch", name);
		*find(s, text, true) = slot->u.pitched.pitch;
	}
}

static void run_call(struct script *s, const struct function *f, char *rest, long expect, const char *line)
{
	struct slot slot[WORDS];
	uint64_t argument[WORDS] = {0};
	struct words words = {0};
	words.word = strtok_r(rest, " ", &words.state);
	memset(slot, 0, sizeof slot);
	for (int i = 0; f->arguments[i]; i++)
		prepare(s, &slot[i], f->arguments[i], &words, line, &argument[i]);
	if (words.word)
		die(line, "too many arguments", 0);
	int result = call(f, argument);
	if (expect >= 0 ? result != expect : !result)
		die(line, "result", result);
	for (int i = 0; f->arguments[i] && !result; i++)
		keep(s, &slot[i], f->arguments[i], &slot[0], line);
	for (int i = 0; f->arguments[i]; i++)
		if (f->arguments[i] == 'w')
			close((int)argument[i]);
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
		*own = *s;
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

static bool run_control(struct script *s, const char *line, const char *word, char *rest)
{
	char name[40] = "", from[40] = "";
	sscanf(rest, "%39s %39s", name, from);
	if (!strcmp(word, "sleep"))
		nanosleep(&(struct timespec){atol(rest) / 1000, atol(rest) % 1000 * 1000000}, NULL);
	else if (!strcmp(word, "print"))
		puts(rest), fflush(stdout);
	else if (!strcmp(word, "ready"))
		printf("ready %d\n", getpid()), fflush(stdout);
	else if (!strcmp(word, "wait"))
		wait_go(s->from_file);
	else if (!strcmp(word, "kill"))
		kill(getpid(), SIGKILL);
	else if (!strcmp(word, "value"))
		printf("%s %" PRIu64 "\n", name, input(s, name, line)), fflush(stdout);
	else if (!strcmp(word, "is")) {
		if (input(s, name, line) != input(s, from, line))
			die(line, "is", (long)input(s, name, line));
	} else if (!strcmp(word, "add")) {
		char *last = strrchr(rest, ' ');
		uint64_t sum = input(s, from, line) + number(last ? last + 1 : "", line);
		*find(s, name, true) = sum;
	} else if (!strcmp(word, "host")) {
		void *p = mmap(NULL, number(from, line), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			die(line, "no memory", 0);
		*find(s, name, true) = (uint64_t)p;
	} else
		return false;
	return true;
}

FRAME static void run_script(struct script *s, int from, int to)
{
	for (int i = from; i < to; i++) {
		char word[64] = "", *copy = strdup(s->line[i]), *at = copy;
		const char *line = s->line[i];
		long expect = 0;
		if (*at == '!') {
			expect = at[1] >= '0' && at[1] <= '9' ? strtol(at + 1, &at, 10) : (at++, -1);
			at += strspn(at, " ");
		}
		int used = 0;
		const struct function *f;
		if (sscanf(at, "%63s %n", word, &used) < 1 || *word == '#') {
			free(copy);
			continue;
		}
		at += used;
		if (!strcmp(word, "threads") || !strcmp(word, "repeat")) {
			int end = block_end(s, i, to);
			if (*word == 't')
				run_threads(s, atoi(at), i + 1, end);
			for (int n = *word == 'r' ? atoi(at) : 0; n > 0; n--)
				run_script(s, i + 1, end);
			i = end;
		} else if ((f = function(word)))
			run_call(s, f, at, expect, line);
		else if (!run_control(s, line, word, at))
			die(line, "unknown", 0);
		free(copy);
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
	if (argc > 1 && !strcmp(argv[1], "--random")) {
		bool wait = run_random(argc, argv);
		printf("random %s %s done\n", argv[2], argv[3]), fflush(stdout);
		if (wait)
			wait_go(true);
		return 0;
	}
	FILE *in = argc > 1 ? fopen(argv[1], "re") : stdin;
	if (!in) {
		perror(argv[1]);
		return 1;
	}
	struct script *s = read_script(in);
	s->from_file = argc > 1;
	run_script(s, 0, s->lines);
	return 0;
}
