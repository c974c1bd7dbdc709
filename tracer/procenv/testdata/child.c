// SPDX-License-Identifier: Apache-2.0

// child MODE: changes its environment, prints "ready" and waits until stdin is closed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>


static char *mine[] = {"CUDA_VISIBLE_DEVICES=7", "CUDA_VISIBLE_DEVICES=8", "RANK=3", NULL};

// restless changes the array and the strings of the environment forever, with pauses in which a
// fast reader sees a consistent environment.
static void *restless(void *unused)
{
	char name[16], value[300];
	memset(value, 'v', sizeof value);
	value[sizeof value - 1] = 0;
	for (unsigned n = 0;; n++) {
		snprintf(name, sizeof name, "N%u", n * 7 % 500);
		if (n / 500 % 2)
			unsetenv(name);
		else
			setenv(name, value + n % 290, 1);
		if (n % 10000 == 0)
			usleep(1000);
	}
	return unused;
}

// hole makes environ point to memory where every read blocks.
static void hole(void)
{
	long page = sysconf(_SC_PAGESIZE);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = {.api = UFFD_API};
	char *at = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register area = {.range = {(unsigned long)at, (unsigned long)page}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &area)) {
		puts("no userfaultfd");
		exit(0);
	}
	environ = (char **)at;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	pthread_t thread;
	setenv("CUDA_VISIBLE_DEVICES", "7", 1);
	setenv("RANK", "3", 1);
	if (!strcmp(mode, "replace"))
		environ = mine;
	else if (!strcmp(mode, "clear"))
		clearenv();
	else if (!strcmp(mode, "wild"))
		environ = (char **)8;
	else if (!strcmp(mode, "hole"))
		hole();
	else if (!strcmp(mode, "restless"))
		pthread_create(&thread, NULL, restless, NULL);
	puts("ready");
	fflush(stdout);
	return getchar() == EOF ? 0 : 1;
}
