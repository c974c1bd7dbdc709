// SPDX-License-Identifier: Apache-2.0
// keep NODE MODE: opens a device file without its driver, and keeps it:
//
//   plain    in this process
//   zombie   in a thread, after the leader has exited
//   orphan   in a grandchild, whose parent has ended, in the group of this process, which lives
//   lost     the same, but in the group of the parent that has ended
//   worker   lost, with the name that PyTorch gives to workers of a DataLoader
//   passed   in a child that gets the descriptor over a socket, as another number, and in this one
//   ended    passed, but this one has ended
//
// It prints the pid of the process that keeps the file.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void keep(void)
{
	printf("%d\n", getpid());
	fflush(stdout);
	pause();
}

static void pass(int file, int socket, int receive)
{
	char byte = 0, room[CMSG_SPACE(sizeof file)];
	struct iovec data = {&byte, 1};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	if (receive) {
		dup(0); // the number differs
		if (recvmsg(socket, &m, 0) < 0)
			exit(1);
		return;
	}
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(c), &file, sizeof file);
	if (sendmsg(socket, &m, 0) < 0)
		exit(1);
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
	if (!strcmp(argv[2], "passed") || !strcmp(argv[2], "ended")) {
		int ends[2];
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
			return 1;
		if (fork() == 0) {
			pass(-1, ends[1], 1);
			keep();
		}
		pass(open(argv[1], O_PATH), ends[0], 0);
		if (!strcmp(argv[2], "ended"))
			return 0;
		pause();
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
