// SPDX-License-Identifier: Apache-2.0
// How calls_c finds functions and calls them, and its files.
#include "calls_c.h"
#include "calls.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DECLARE(name, arguments) int name(void);
RUNTIME_FUNCTIONS(DECLARE)
LATE_RUNTIME_FUNCTIONS(DECLARE)
#define RUNTIME(name, arguments) {#name, arguments, name},
#define DRIVER(name, arguments) {#name, arguments, NULL},
#ifdef LATE_BY_NAME // so that the program runs with NVIDIA's runtime of CUDA 12 too
#define LATE DRIVER
#else
#define LATE RUNTIME
#endif
static struct function functions[] = {RUNTIME_FUNCTIONS(RUNTIME) LATE_RUNTIME_FUNCTIONS(LATE) DRIVER_FUNCTIONS(DRIVER)};

struct extent {
	size_t width, height, depth;
};
struct handle {
	unsigned char bytes[64];
};
typedef uint64_t u;

const struct function *function(const char *name)
{
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		if (strcmp(functions[i].name, name) == 0)
			return &functions[i];
	return NULL;
}

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned) = NULL;
	for (size_t i = 0; library && i < sizeof functions / sizeof *functions; i++)
		if (!functions[i].code)
			functions[i].code = dlsym(library, functions[i].name);
	if (library)
		*(void **)&init = dlsym(library, "cuInit");
	if (!init || init(0) != 0) {
		fprintf(stderr, "calls_c: no driver\n");
		exit(1);
	}
}

// ready_driver gives the thread a context, unless the script does that.
static void ready_driver(const char *name)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load);
	static __thread bool done;
	if (done || !strncmp(name, "cuCtx", 5) || !strncmp(name, "cuDevice", 8) || !strcmp(name, "cuInit"))
		return;
	done = true;
	void *context = NULL;
	int (*get)(void **) = (int (*)(void **))function("cuCtxGetCurrent")->code;
	int (*retain)(void **, int) = (int (*)(void **, int))function("cuDevicePrimaryCtxRetain")->code;
	int (*set)(void *) = (int (*)(void *))function("cuCtxSetCurrent")->code;
	if (get(&context) != 0 || (!context && (retain(&context, 0) != 0 || set(context) != 0))) {
		fprintf(stderr, "calls_c: %s: no context\n", name);
		exit(1);
	}
}

__attribute__((noipa)) int call(const struct function *f, const uint64_t a[8])
{
	if (strncmp(f->name, "cuda", 4) != 0)
		ready_driver(f->name);
	else if (!f->code)
		((struct function *)f)->code = dlsym(RTLD_DEFAULT, f->name);
	if (!f->code) {
		fprintf(stderr, "calls_c: no function %s\n", f->name);
		exit(1);
	}
	const char *extent = strchr(f->arguments, 'e');
	if (strchr(f->arguments, 'h'))
		return ((int (*)(u, struct handle, u))f->code)(a[0], *(struct handle *)a[1], a[2]);
	if (extent && extent - f->arguments == 1)
		return ((int (*)(u, struct extent))f->code)(a[0], *(struct extent *)a[1]);
	if (extent)
		return ((int (*)(u, u, struct extent, u, u))f->code)(a[0], a[1], *(struct extent *)a[2], a[3], a[4]);
	return ((int (*)(u, u, u, u, u, u))f->code)(a[0], a[1], a[2], a[3], a[4], a[5]);
}

void die(const char *line, const char *why, long number)
{
	fprintf(stderr, "calls_c: %s: %s (%ld)\n", line, why, number);
	exit(1);
}

void read_file(const char *path, const char *line, void *to, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, to, size);
	if (n <= 0)
		die(line, "cannot read the file", n);
	close(fd);
}

void write_file(const char *path, const char *line, const void *from, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, from, size) != (ssize_t)size)
		die(line, "cannot write the file", fd);
	close(fd);
}

int open_shared(const char *path, const char *line)
{
	char where[64] = "";
	read_file(path, line, where, sizeof where - 1);
	int fd = open(where, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die(line, where, fd);
	return fd;
}
