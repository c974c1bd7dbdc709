// SPDX-License-Identifier: Apache-2.0
// Waits until a test continues the program: with SIGUSR1, or with a line on stdin.
#pragma once
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int wait_fd = -1;

// wait_prepare must run before threads are created, so that an early signal does not kill the
// process.
static inline void wait_prepare(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	wait_fd = signalfd(-1, &set, SFD_CLOEXEC);
}

// wait_go returns after a signal since the last call, or after a line. The end of stdin is not a
// line.
static inline void wait_go(bool use_stdin)
{
	struct pollfd fds[2] = {{wait_fd, POLLIN, 0}, {use_stdin ? 0 : -1, POLLIN, 0}};
	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[0].revents & POLLIN) {
			struct signalfd_siginfo info;
			if (read(wait_fd, &info, sizeof info) > 0)
				return;
		}
		if (fds[1].revents) {
			char c = 0;
			ssize_t n;
			while ((n = read(0, &c, 1)) == 1 && c != '\n')
				;
			if (n == 1)
				return;
			fds[1].fd = -1;
		}
	}
}
