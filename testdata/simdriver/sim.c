// SPDX-License-Identifier: Apache-2.0
// Start, lock and logs.
#include "sim.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

pthread_mutex_t sim_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int log_fd = -1, unknown_fd = -1;

static int open_append(const char *variable)
{
	const char *path = getenv(variable);
	return path && *path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
}

static void write_line(int fd, const char *format, va_list arguments)
{
	char line[1024];
	int n = vsnprintf(line, sizeof line - 1, format, arguments);
	if (n < 0)
		return;
	if (n > (int)sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	if (write(fd, line, n) != n)
		return;
}

// sim_log writes a line to $SIMDRIVER_LOG.
void sim_log(const char *format, ...)
{
	if (log_fd < 0)
		return;
	va_list arguments;
	va_start(arguments, format);
	write_line(log_fd, format, arguments);
	va_end(arguments);
}

static void write_unknown(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	write_line(unknown_fd, format, arguments);
	va_end(arguments);
}

// sim_unknown notes a request that has no answer, once per process, in $SIMDRIVER_UNKNOWN.
void sim_unknown(const char *kind, u32 number, const char *name)
{
	static u32 seen[1024];
	static unsigned count;
	sim_log("unknown %s %#x %s", kind, number, name);
	for (unsigned i = 0; i < count; i++)
		if (seen[i] == number)
			return;
	if (count < COUNT(seen))
		seen[count++] = number;
	if (unknown_fd >= 0)
		write_unknown("%s %#x%s%s", kind, number, *name ? " " : "", name);
}

static void before_fork(void) { pthread_mutex_lock(&sim_lock); }
static void after_fork(void) { pthread_mutex_unlock(&sim_lock); }
// The lock belongs to the parent's thread, so the child makes a new one.
static void in_child(void)
{
	after_fork_in_child();
	forget_all_objects();
	sim_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

__attribute__((constructor)) static void start(void)
{
	log_fd = open_append("SIMDRIVER_LOG");
	unknown_fd = open_append("SIMDRIVER_UNKNOWN");
	choose_model();
	pthread_atfork(before_fork, after_fork, in_child);
}
