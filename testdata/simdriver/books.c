// SPDX-License-Identifier: Apache-2.0
// The book of all processes on the simulated machine: a file, $SIMDRIVER_BOOK. Without it, a process
// is alone. Each process holds a record lock on its slot: the kernel releases it when the process
// ends, however it ends, so an unlocked slot is free. The byte behind the slots guards the book.
#include "sim.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLOTS = 64, PUBLISHED = 2048 };

struct book {
	struct slot {
		int pid;
		u64 used[MAX_GPUS];
	} slots[SLOTS];
	// Memory that other processes may open: by handle through /proc/PID/fd, or by an exported
	// descriptor, whose inode identifies the memory.
	struct published {
		int pid, fd; // pid 0: free
		u32 client, handle, class, gpu;
		u64 size, inode;
	} published[PUBLISHED];
};

static struct book private_book, *book;
static struct slot *mine;
static int book_fd = -1;
static pid_t owner;

static bool lock_byte(int byte, short type, int command)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	return fcntl(book_fd, command, &lock) == 0;
}

static void enter(void)
{
	open_book();
	if (book_fd >= 0)
		lock_byte(SLOTS, F_WRLCK, F_SETLKW);
}

static void leave(void)
{
	if (book_fd >= 0)
		lock_byte(SLOTS, F_UNLCK, F_SETLK);
}

static bool slot_in_use(int i)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i, .l_len = 1};
	if (&book->slots[i] == mine)
		return true;
	if (book_fd < 0 || !book->slots[i].pid)
		return false;
	return fcntl(book_fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// open_book opens the file at first use, also in a forked child.
void open_book(void)
{
	const char *path = getenv("SIMDRIVER_BOOK");
	if (book && owner == getpid())
		return;
	owner = getpid();
	mine = NULL;
	book = &private_book;
	memset(book, 0, sizeof *book);
	book_fd = -1;
	if (!path || !*path)
		return;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	struct stat s;
	if (fd < 0 || fstat(fd, &s) || (s.st_size < (off_t)sizeof *book && ftruncate(fd, sizeof *book)))
		return;
	long at = syscall(SYS_mmap, NULL, sizeof *book, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == -1)
		return;
	book = (struct book *)at;
	book_fd = fd;
}

// is_book reports whether a descriptor is the book's. A program must not close it: that would
// release the locks.
bool is_book(int fd) { return fd >= 0 && fd == book_fd && owner == getpid(); }

static struct slot *my_slot(void)
{
	for (int i = 0; !mine && i < SLOTS; i++) {
		if (slot_in_use(i) || (book_fd >= 0 && !lock_byte(i, F_WRLCK, F_SETLK)))
			continue;
		book->slots[i] = (struct slot){.pid = getpid()};
		mine = &book->slots[i];
	}
	return mine;
}

static u64 sum(int gpu)
{
	u64 n = 0;
	for (int i = 0; i < SLOTS; i++)
		if (slot_in_use(i))
			n += book->slots[i].used[gpu];
	return n;
}

bool charge(int gpu, int64_t bytes)
{
	enter();
	struct slot *s = my_slot();
	bool fits = s && (bytes <= 0 || sum(gpu) + (u64)bytes <= heap_bytes());
	if (fits)
		s->used[gpu] += (u64)bytes;
	leave();
	return fits;
}

u64 used_bytes(int gpu)
{
	enter();
	u64 n = sum(gpu);
	leave();
	return n;
}

int pids_on(int gpu, u32 *pids, int limit)
{
	int n = 0;
	enter();
	for (int i = 0; i < SLOTS && n < limit; i++)
		if (slot_in_use(i) && book->slots[i].used[gpu])
			pids[n++] = (u32)book->slots[i].pid;
	leave();
	return n;
}

u64 used_by(int gpu, int pid)
{
	u64 n = 0;
	enter();
	for (int i = 0; i < SLOTS; i++)
		if (slot_in_use(i) && book->slots[i].pid == pid)
			n = book->slots[i].used[gpu];
	leave();
	return n;
}

static bool pid_in_use(int pid)
{
	for (int i = 0; i < SLOTS; i++)
		if (book->slots[i].pid == pid && slot_in_use(i))
			return true;
	return false;
}

void publish(struct object *o)
{
	struct stat s;
	if (o->memfd < 0 || fstat(o->memfd, &s))
		return;
	enter();
	my_slot();
	for (int i = 0; i < PUBLISHED && !o->published; i++) {
		struct published *p = &book->published[i];
		if (p->pid && pid_in_use(p->pid))
			continue;
		*p = (struct published){getpid(), o->memfd, o->client, o->handle, o->class, o->gpu, o->size, s.st_ino};
		o->published = true;
	}
	leave();
	if (!o->published)
		sim_log("no room to share %#lx bytes", o->size);
}

void unpublish(const struct object *o)
{
	enter();
	for (int i = 0; i < PUBLISHED; i++) {
		struct published *p = &book->published[i];
		if (p->pid == getpid() && p->client == o->client && p->handle == o->handle)
			p->client = p->handle = 0;
	}
	leave();
}

static bool take(const struct published *p, int memfd, struct object *o)
{
	*o = (struct object){.class = p->class, .gpu = p->gpu, .size = p->size, .memfd = memfd};
	return memfd >= 0;
}

bool find_published(u32 client, u32 handle, struct object *o)
{
	bool found = false;
	enter();
	for (int i = 0; i < PUBLISHED && !found; i++) {
		struct published *p = &book->published[i];
		char path[64];
		if (!p->pid || p->client != client || p->handle != handle)
			continue;
		snprintf(path, sizeof path, "/proc/%d/fd/%d", p->pid, p->fd);
		found = take(p, (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC), o);
	}
	leave();
	return found;
}

bool find_published_file(int fd, struct object *o)
{
	struct stat s;
	bool found = false;
	if (fstat(fd, &s))
		return false;
	enter();
	for (int i = 0; i < PUBLISHED && !found; i++)
		if (book->published[i].pid && book->published[i].inode == s.st_ino)
			found = take(&book->published[i], fcntl(fd, F_DUPFD_CLOEXEC, 0), o);
	leave();
	return found;
}
