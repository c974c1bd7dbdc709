// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "books.h"
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t environment_bytes(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	if (!text || !*text)
		return otherwise;
	char *unit;
	uint64_t n = strtoull(text, &unit, 0);
	switch (*unit) {
	case 'k': case 'K': return n << 10;
	case 'm': case 'M': return n << 20;
	case 'g': case 'G': return n << 30;
	case 't': case 'T': return n << 40;
	}
	return n;
}

void gpu_uuid(int gpu, unsigned char uuid[16])
{
	for (int i = 0; i < 16; i++)
		uuid[i] = (unsigned char)(0x11 * (i + 1) + 0x2b * gpu);
	uuid[0] = 0xfa;
	uuid[15] = (unsigned char)gpu;
}

int gpu_minor(int gpu, int gpus) { return environment_bytes("FAKECUDA_MINORS", 0) ? gpus - 1 - gpu : gpu; }

static void uuid_text(const char *prefix, const unsigned char u[16], char text[41])
{
	snprintf(text, 41, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix, u[0], u[1], u[2], u[3],
		 u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

void gpu_uuid_text(int gpu, char text[41])
{
	unsigned char u[16];
	gpu_uuid(gpu, u);
	uuid_text("GPU", u, text);
}

void mig_uuid(int instance, unsigned char uuid[16])
{
	gpu_uuid(instance, uuid);
	uuid[0] = 0xfb;
}

void mig_uuid_text(int instance, char text[41])
{
	unsigned char u[16];
	mig_uuid(instance, u);
	uuid_text("MIG", u, text);
}

static struct flock slot_lock(struct books *b, int slot, short type)
{
	off_t at = (char *)&b->process[slot] - (char *)b;
	return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
}

static uint64_t own_start(void)
{
	char text[1024];
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	char *field = strrchr(text, ')'); // the name may contain anything
	for (int i = 2; field && i < 22; i++)
		field = strchr(field + 1, ' ');
	return field ? strtoull(field, NULL, 10) : 0;
}

pid_t books_owner(struct books *b, int fd, int slot)
{
	struct process_books *p = &b->process[slot];
	if (!p->pid)
		return 0;
	struct flock l = slot_lock(b, slot, F_WRLCK);
	if (fcntl(fd, F_GETLK, &l) == 0 && l.l_type != F_UNLCK)
		return l.l_pid > 0 ? l.l_pid : 0;
	// F_GETLK does not report locks of the caller's own process.
	if (p->pid == (uint64_t)getpid() && p->start == own_start())
		return getpid();
	return 0;
}

static bool anyone_alive(struct books *b, int fd)
{
	for (uint64_t i = 0; i < b->high && i < MAX_PROCESSES; i++)
		if (books_owner(b, fd, (int)i))
			return true;
	return false;
}

static void books_configure(struct books *b, int fd)
{
	uint64_t gpus = environment_bytes("FAKECUDA_GPUS", 1);
	uint64_t capacity = environment_bytes("FAKECUDA_MEMORY", 8ull << 30) & ~(GPU_PAGE - 1);
	uint64_t mig = environment_bytes("FAKECUDA_MIG", 0) != 0;
	if (mig)
		gpus *= MIG_INSTANCES;
	if (gpus > MAX_GPUS)
		gpus = MAX_GPUS;
	if (b->magic == BOOKS_MAGIC) {
		if ((b->gpus == gpus && b->capacity == capacity && b->mig == mig) || anyone_alive(b, fd))
			return;
	}
	b->magic = 0;
	memset(b->process, 0, sizeof b->process);
	b->high = 0;
	b->gpus = gpus;
	b->capacity = capacity;
	b->mig = mig;
	b->magic = BOOKS_MAGIC;
}

struct books *books_open(int *out)
{
	char name[64];
	const char *path = getenv("FAKECUDA_SHM");
	if (!path || !*path) {
		snprintf(name, sizeof name, "/dev/shm/fakecuda-%u", (unsigned)getuid());
		path = name;
	}
	// Try without O_CREAT first: with it, fs.protected_regular prevents root from opening another
	// user's file.
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return NULL;
	struct books *b = NULL;
	struct stat st;
	if (flock(fd, LOCK_EX) == 0 && fstat(fd, &st) == 0 &&
	    (st.st_size >= (off_t)sizeof *b || ftruncate(fd, sizeof *b) == 0)) {
		b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (b == MAP_FAILED)
			b = NULL;
		else
			books_configure(b, fd);
	}
	flock(fd, LOCK_UN);
	*out = fd;
	return b;
}

static bool try_slot(struct books *b, int fd, int i)
{
	struct flock l = slot_lock(b, i, F_WRLCK);
	if (fcntl(fd, F_SETLK, &l) != 0)
		return false;
	struct process_books *p = &b->process[i];
	memset(p, 0, sizeof *p);
	p->start = own_start();
	p->pid = (uint64_t)getpid();
	uint64_t high = b->high;
	while (high < (uint64_t)i + 1 && !atomic_compare_exchange_weak(&b->high, &high, (uint64_t)i + 1))
		;
	return true;
}

struct process_books *books_claim(struct books *b, int fd)
{
	for (int i = 0; i < KEEP_ENDED; i++)
		if (!b->process[i].pid && try_slot(b, fd, i))
			return &b->process[i];
	for (int i = 0; i < MAX_PROCESSES; i++)
		if (try_slot(b, fd, i))
			return &b->process[i];
	return NULL;
}

// The caller serializes calls within a process: file locks do not exclude its own threads.
void books_sweep(struct books *b, int fd, const struct process_books *self)
{
	for (uint64_t i = 0; i < b->high; i++) {
		struct process_books *p = &b->process[i];
		struct flock l = slot_lock(b, (int)i, F_WRLCK);
		if (p == self || !p->pid || fcntl(fd, F_SETLK, &l) != 0)
			continue;
		for (int g = 0; g < MAX_GPUS; g++)
			p->gpu[g].context = p->gpu[g].reserved = 0;
		l.l_type = F_UNLCK;
		fcntl(fd, F_SETLK, &l);
	}
}

uint64_t books_used(struct books *b, int gpu)
{
	uint64_t sum = 0, high = b->high;
	for (uint64_t i = 0; i < high; i++)
		sum += b->process[i].gpu[gpu].reserved + b->process[i].gpu[gpu].context;
	return sum;
}
