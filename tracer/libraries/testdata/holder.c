// SPDX-License-Identifier: Apache-2.0
//
// Usage: holder /dev/fuse FOLDER [LIBRARY]. An unprivileged process that holds its own mmap_lock: it mounts a
// file system in namespaces of its own, makes a page of a file there dirty, and maps another page
// over it. The kernel then writes the page back under the lock, and the file system does not answer
// before a line is read from stdin. It maps LIBRARY as code before, and prints "holds" while it does.
// The file system is a child, so that the kernel gives up the page when both are killed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static int device;
static char request[1 << 16], out[4096 + sizeof(struct fuse_out_header)], page[4096];
static struct { sem_t holds, release; } *shared;

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void answer(unsigned long unique, int error, const void *body, size_t size)
{
	struct fuse_out_header header = {.len = sizeof(header) + size, .error = -error, .unique = unique};
	memcpy(out, &header, sizeof(header));
	memcpy(out + sizeof(header), body, size);
	if (write(device, out, header.len) < 0 && errno != ENOENT)
		die("answer");
}

static struct fuse_attr attributes(unsigned long node)
{
	return (struct fuse_attr){.ino = node, .size = 4096, .mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644, .nlink = 1, .blksize = 4096};
}

static void serve(void)
{
	// The kernel copies without faults what is in memory: a fault would wait for the lock.
	memset(request, 1, sizeof(request));
	memset(out, 1, sizeof(out));
	memset(page, 1, sizeof(page));
	while (read(device, request, sizeof(request)) > 0) {
		struct fuse_in_header *in = (void *)request;
		struct fuse_write_in *write = (void *)(in + 1);
		struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096, .flags = FUSE_WRITEBACK_CACHE};
		struct fuse_entry_out entry = {.nodeid = 2, .entry_valid = 1000, .attr_valid = 1000, .attr = attributes(2)};
		struct fuse_attr_out attr = {.attr_valid = 1000, .attr = attributes(in->nodeid)};
		struct fuse_open_out open = {.fh = 1};
		struct fuse_write_out written = {.size = write->size};
		switch (in->opcode) {
		case FUSE_INIT: answer(in->unique, 0, &init, sizeof(init)); break;
		case FUSE_LOOKUP: answer(in->unique, 0, &entry, sizeof(entry)); break;
		case FUSE_GETATTR:
		case FUSE_SETATTR: answer(in->unique, 0, &attr, sizeof(attr)); break;
		case FUSE_OPEN: answer(in->unique, 0, &open, sizeof(open)); break;
		case FUSE_READ: answer(in->unique, 0, page, sizeof(page)); break;
		case FUSE_WRITE:
			sem_post(&shared->holds);
			sem_wait(&shared->release);
			answer(in->unique, 0, &written, sizeof(written));
			break;
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET: break;
		case FUSE_FLUSH:
		case FUSE_RELEASE: answer(in->unique, 0, NULL, 0); break;
		default: answer(in->unique, ENOSYS, NULL, 0);
		}
	}
}

static void *hold(void *file)
{
	volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, *(int *)file, 0);
	if (page == MAP_FAILED)
		die("map a page");
	page[0] = 1;
	mmap((void *)page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	return NULL;
}

static void writeFile(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		die(path);
	close(fd);
}

int main(int count, char **arguments)
{
	char text[64], path[4096];
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count > 3) {
		int fd = open(arguments[3], O_RDONLY);
		if (fd < 0 || mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			die(arguments[3]);
	}
	unsigned uid = getuid(), gid = getgid();
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		die("unshare");
	snprintf(text, sizeof(text), "0 %u 1", uid);
	writeFile("/proc/self/setgroups", "deny");
	writeFile("/proc/self/uid_map", text);
	snprintf(text, sizeof(text), "0 %u 1", gid);
	writeFile("/proc/self/gid_map", text);
	device = open(arguments[1], O_RDWR);
	if (device < 0)
		die(arguments[1]);
	snprintf(text, sizeof(text), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (mount("holder", arguments[2], "fuse", MS_NOSUID | MS_NODEV, text))
		die("mount");
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sem_init(&shared->holds, 1, 0);
	sem_init(&shared->release, 1, 0);
	if (!fork()) {
		serve();
		return 0;
	}
	close(device); // when the child ends, so does the file system
	snprintf(path, sizeof(path), "%s/file", arguments[2]);
	int file = open(path, O_RDWR);
	if (file < 0)
		die(path);
	static char line[64];
	write(1, "maps\n", 5);
	read(0, line, sizeof(line));
	pthread_t thread;
	pthread_create(&thread, NULL, hold, &file);
	sem_wait(&shared->holds);
	write(1, "holds\n", 6);
	read(0, line, sizeof(line));
	sem_post(&shared->release);
	pthread_join(thread, NULL);
	write(1, "released\n", 9);
	read(0, line, sizeof(line));
	return 0;
}
