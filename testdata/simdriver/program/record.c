// SPDX-License-Identifier: Apache-2.0
// Records what a process asks NVIDIA's kernel driver, by LD_PRELOAD, to the file $RECORD: one line for each
// ioctl of the resource manager, after the driver answered.
//
//   alloc CLASS client parent handle status BYTES before after
//   control NUMBER client object status BYTES before after
//   free client parent handle status
//   escape NUMBER size status: any other
//
// Numbers are hexadecimal; before and after are the parameters, at most 4 KiB of them. The layouts are those
// of NVOS00, NVOS21, NVOS54 and NVOS64 in nvos.h (MIT), equal in 535, 550 and 555, and valid on 580.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAGIC = 'F', FREE = 0x29, CONTROL = 0x2a, ALLOC = 0x2b, XFER = 211, MOST = 4096 };

struct release { uint32_t client, parent, handle, status; };
struct allocation { uint32_t client, parent, handle, class; uint64_t parameters; uint64_t rights_or_size /* NVOS21: size, status */; uint32_t size, flags, status; };
struct control { uint32_t client, object, number, flags; uint64_t parameters; uint32_t size, status; };
struct transfer { uint32_t number, size; uint64_t argument; };

static int record = -1;
static int (*next)(int, unsigned long, ...);

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("RECORD");
	next = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	if (path)
		record = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static char *hex(char *to, const void *from, size_t n)
{
	*to++ = ' ';
	if (!n || !from)
		*to++ = '-';
	for (size_t i = 0; from && i < n; i++)
		to += sprintf(to, "%02x", ((const unsigned char *)from)[i]);
	return to;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *argument = va_arg(list, void *);
	va_end(list);
	unsigned number = request & 0xff, size = request >> 16 & 0x3fff;
	void *body = argument;
	if (record < 0 || (request >> 8 & 0xff) != MAGIC)
		return next ? next(fd, request, argument) : -1;
	if (number == XFER) {
		struct transfer *t = argument;
		number = t->number;
		size = t->size;
		body = (void *)(uintptr_t)t->argument;
	}
	static __thread char before[MOST], line[4 * MOST + 256];
	const void *parameters = NULL;
	uint32_t bytes = 0;
	if (number == ALLOC) {
		struct allocation *a = body;
		parameters = (void *)(uintptr_t)a->parameters;
		bytes = size == 48 ? a->size : (uint32_t)a->rights_or_size;
		if (parameters && !bytes)
			bytes = a->class == 0x3e || a->class == 0x3f || a->class == 0x40 ? 128 : 4;
	} else if (number == CONTROL) {
		struct control *c = body;
		parameters = (void *)(uintptr_t)c->parameters;
		bytes = c->size;
	}
	uint32_t shown = parameters ? bytes < MOST ? bytes : MOST : 0;
	if (shown)
		memcpy(before, parameters, shown);
	int result = next(fd, request, argument), error = errno;
	char *end = line;
	if (number == ALLOC) {
		struct allocation *a = body;
		end += sprintf(end, "alloc %x %x %x %x %x %x", a->class, a->client, a->parent, a->handle, size == 48 ? a->status : (uint32_t)(a->rights_or_size >> 32), bytes);
	} else if (number == CONTROL) {
		struct control *c = body;
		end += sprintf(end, "control %x %x %x %x %x", c->number, c->client, c->object, c->status, bytes);
	} else if (number == FREE) {
		struct release *r = body;
		end += sprintf(end, "free %x %x %x %x", r->client, r->parent, r->handle, r->status);
	} else {
		end += sprintf(end, "escape %x %x %x", number, size, (unsigned)result);
		end = hex(end, body, size < MOST ? size : MOST);
	}
	if (number == ALLOC || number == CONTROL) {
		end = hex(end, before, shown);
		end = hex(end, parameters, shown);
	}
	*end++ = '\n';
	if (write(record, line, (size_t)(end - line)) < 0)
		record = -1;
	errno = error;
	return result;
}
