// SPDX-License-Identifier: Apache-2.0
// The functions of libc that replace libc's own, by LD_PRELOAD. What does not concern the driver's
// devices goes to the kernel.
#include "sim.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAJOR = 195, CONTROL_MINOR = 255, UVM_MAJOR = 511 };

static enum device device_of(int fd) { return fd >= 0 && fd < MAX_FDS ? files[fd].device : NOT_OURS; }

static int open_path(int folder, const char *path, int flags, mode_t mode)
{
	enum device device = device_at(path);
	if (!device)
		return (int)syscall(SYS_openat, folder, path, flags, mode);
	pthread_mutex_lock(&sim_lock);
	int fd = open_device(device, flags);
	sim_log("open %s: %d", path, fd);
	pthread_mutex_unlock(&sim_lock);
	return fd;
}

#define MODE_AFTER(flags) ({ va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); mode; })

EXPORT int open(const char *path, int flags, ...) { return open_path(AT_FDCWD, path, flags, MODE_AFTER(flags)); }
EXPORT int open64(const char *path, int flags, ...) { return open_path(AT_FDCWD, path, flags, MODE_AFTER(flags)); }
EXPORT int openat(int folder, const char *path, int flags, ...) { return open_path(folder, path, flags, MODE_AFTER(flags)); }
EXPORT int openat64(int folder, const char *path, int flags, ...) { return open_path(folder, path, flags, MODE_AFTER(flags)); }

EXPORT int close(int fd)
{
	if (is_book(fd)) {
		errno = EBADF;
		return -1;
	}
	if (device_of(fd)) {
		pthread_mutex_lock(&sim_lock);
		sim_log("close %d", fd);
		close_device(fd);
		pthread_mutex_unlock(&sim_lock);
	}
	static int (*next)(int);
	if (!next)
		next = (int (*)(int))dlsym(RTLD_NEXT, "close");
	return next(fd); // a cancellation point
}

// ioctl also makes the real call, which the descriptor refuses, so that a tracer in the kernel sees
// it with the arguments of the program.
EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *argument = va_arg(list, void *);
	va_end(list);
	int result = (int)syscall(SYS_ioctl, fd, request, argument);
	if (!device_of(fd))
		return result;
	pthread_mutex_lock(&sim_lock);
	errno = 0;
	result = files[fd].device == UVM_DEVICE ? uvm_ioctl(request, argument) : rm_ioctl(fd, request, argument);
	int error = errno;
	pthread_mutex_unlock(&sim_lock);
	errno = error;
	return result;
}

static void *map(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (!device_of(fd))
		return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
	pthread_mutex_lock(&sim_lock);
	void *p = map_device(at, length, protection, flags, fd);
	pthread_mutex_unlock(&sim_lock);
	return p;
}

EXPORT void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) { return map(at, length, protection, flags, fd, offset); }
EXPORT void *mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset) { return map(at, length, protection, flags, fd, offset); }

static int status_of(const char *path, struct stat *s, int flags)
{
	enum device device = device_at(path);
	if (!device)
		return (int)syscall(SYS_newfstatat, AT_FDCWD, path, s, flags);
	memset(s, 0, sizeof *s);
	s->st_mode = S_IFCHR | 0666;
	s->st_nlink = 1;
	s->st_rdev = device == UVM_DEVICE ? makedev(UVM_MAJOR, 0) : makedev(MAJOR, device == CONTROL_DEVICE ? CONTROL_MINOR : path[11] - '0');
	return 0;
}

EXPORT int stat(const char *path, struct stat *s) { return status_of(path, s, 0); }
EXPORT int stat64(const char *path, struct stat64 *s) { return status_of(path, (struct stat *)s, 0); }
EXPORT int __xstat(int version, const char *path, struct stat *s) { (void)version; return status_of(path, s, 0); }
EXPORT int __xstat64(int version, const char *path, struct stat *s) { (void)version; return status_of(path, s, 0); }
EXPORT int lstat(const char *path, struct stat *s) { return status_of(path, s, AT_SYMLINK_NOFOLLOW); }
EXPORT int __lxstat(int version, const char *path, struct stat *s) { (void)version; return status_of(path, s, AT_SYMLINK_NOFOLLOW); }

EXPORT int access(const char *path, int mode) { return device_at(path) ? 0 : (int)syscall(SYS_access, path, mode); }
EXPORT int chmod(const char *path, mode_t mode) { return device_at(path) ? 0 : (int)syscall(SYS_chmod, path, mode); }

// As root, libcuda makes missing device files itself. None must stay on a machine without a driver.
static int make_node(const char *path, mode_t mode, dev_t device)
{
	if (!strncmp(path, "/dev/nvidia", 11)) {
		sim_log("mknod %s: not made", path);
		return 0;
	}
	return (int)syscall(SYS_mknodat, AT_FDCWD, path, mode, device);
}

EXPORT int mknod(const char *path, mode_t mode, dev_t device) { return make_node(path, mode, device); }
EXPORT int __xmknod(int version, const char *path, mode_t mode, dev_t *device) { (void)version; return make_node(path, mode, *device); }
