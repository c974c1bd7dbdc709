// SPDX-License-Identifier: Apache-2.0
// keep NODE MODE: opens a device file without its driver, and keeps it:
//
//   plain    in this process
//   zombie   in a thread, after the leader has exited
//   orphan   in a grandchild, whose parent has ended, in the group of this process, which lives
//   lost     the same, but in the group of the parent that has ended
//   worker   lost, with the name that PyTorch gives to workers of a DataLoader
//
// It prints the pid of the process that keeps the file.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void keep(void)
{
	printf("%d\n", getpid());
	fflush(stdout);
	pause();
}

static void *thread(void *path)
{
	usleep(100000); // the leader exits first
	if (open(path, O_PATH) < 0)
		exit(1);
	keep();
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	if (!strcmp(argv[2], "zombie")) {
		pthread_t t;
		if (pthread_create(&t, NULL, thread, argv[1]) != 0)
			return 1;
		pthread_exit(NULL);
	}
	if (strcmp(argv[2], "plain")) {
		pid_t parent = fork();
		if (parent > 0) {
			waitpid(parent, NULL, 0);
			pause();
		}
		if (strcmp(argv[2], "orphan"))
			setpgid(0, 0);
		if (fork() > 0)
			_exit(0);
		usleep(100000); // the parent exits first
		if (!strcmp(argv[2], "worker"))
			prctl(PR_SET_NAME, "pt_data_worker");
	}
	if (open(argv[1], O_PATH) < 0)
		return 1;
	keep();
}
