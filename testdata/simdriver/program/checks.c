// SPDX-License-Identifier: Apache-2.0
// Checks what NVIDIA's libcuda does on the simulated kernel driver: checks NAME. It prints what is
// wrong and ends with 1.
//
//   copies    bytes survive copies between host and device (fills, and copies within a device, are
//             kernels of libcuda and change nothing)
//   managed   managed memory is the host's, and the device copies from pinned memory
//   pools     stream-ordered memory, and events
//   vmm       physical memory mapped twice shows the same bytes
//   gpus N    there are N GPUs, and a copy between the first and the last works
//   peers     two GPUs reach each other
//   oom       allocations end with CUDA_ERROR_OUT_OF_MEMORY, and freeing makes room
//   export    another process (checks import SOCKET) maps memory from a file descriptor
//   node      no device file of the driver can be made, and trying succeeds
//   free      prints the free bytes
//   sizes     prints the bytes that the driver took for allocations of several sizes
//   rounding  prints what it holds in MiB after each of some small allocations and frees, and then after
//             stream-ordered ones, with their addresses in KiB from the first
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long address;
enum { OUT_OF_MEMORY = 2, MIB = 1 << 20, POSIX_DESCRIPTOR = 1 };
static void *cuda;

static void fail(const char *what, long got)
{
	printf("%s: %ld\n", what, got);
	exit(1);
}

#define CALL(name, type, ...) ({ int (*f) type = dlsym(cuda, name); f ? f(__VA_ARGS__) : -1; })
#define MUST(name, type, ...) ({ int result = CALL(name, type, __VA_ARGS__); if (result) fail(name, result); })
#define EXPECT(condition) ({ if (!(condition)) fail(#condition, 0); })

static void *use_device(int device)
{
	void *context;
	MUST("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
	MUST("cuCtxSetCurrent", (void *), context);
	return context;
}

static address allocate(size_t bytes)
{
	address at;
	MUST("cuMemAlloc_v2", (address *, size_t), &at, bytes);
	return at;
}

static void release(address at) { MUST("cuMemFree_v2", (address), at); }
static void write_to(address at, const void *from, size_t n) { MUST("cuMemcpyHtoD_v2", (address, const void *, size_t), at, from, n); }
static void read_from(void *to, address at, size_t n) { MUST("cuMemcpyDtoH_v2", (void *, address, size_t), to, at, n); }

static size_t free_bytes(void)
{
	size_t available, total;
	MUST("cuMemGetInfo_v2", (size_t *, size_t *), &available, &total);
	return available;
}

static unsigned char *pattern(size_t n, int seed)
{
	unsigned char *p = malloc(n);
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 7 + (i >> 8) + seed);
	return p;
}

static void copies(void)
{
	static const size_t sizes[] = {1, 1000, 65536, 3 * MIB + 5, 40 * MIB};
	for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
		size_t n = sizes[k];
		unsigned char *p = pattern(n, (int)k), *q = malloc(n);
		address a = allocate(n), b = allocate(n);
		write_to(a, p, n);
		write_to(b, p, n / 2);
		read_from(q, a, n);
		EXPECT(!memcmp(p, q, n));
		read_from(q, b, n / 2);
		EXPECT(!memcmp(p, q, n / 2));
		release(a);
		release(b);
		free(p);
		free(q);
	}
}

static void managed(void)
{
	address at;
	unsigned char *pinned, back[5];
	MUST("cuMemAllocManaged", (address *, size_t, unsigned), &at, 5 * MIB, 1);
	memset((void *)at, 7, 5 * MIB);
	MUST("cuMemHostAlloc", (void **, size_t, unsigned), (void **)&pinned, 3 * MIB, 0);
	memset(pinned, 9, 3 * MIB);
	address device = allocate(3 * MIB);
	MUST("cuMemcpyHtoDAsync_v2", (address, const void *, size_t, void *), device, pinned, 3 * MIB, NULL);
	MUST("cuCtxSynchronize", (void), );
	read_from(back, device + 3 * MIB - 5, sizeof back);
	EXPECT(back[4] == 9);
	MUST("cuMemFreeHost", (void *), pinned);
	release(at);
}

static void pools(void)
{
	void *stream, *event;
	address at;
	unsigned char *p = pattern(MIB, 3), *q = malloc(MIB);
	MUST("cuStreamCreate", (void **, unsigned), &stream, 1);
	for (int i = 0; i < 20; i++) {
		MUST("cuMemAllocAsync", (address *, size_t, void *), &at, (size_t)MIB * (i + 1), stream);
		MUST("cuMemcpyHtoDAsync_v2", (address, const void *, size_t, void *), at, p, MIB, stream);
		MUST("cuMemcpyDtoHAsync_v2", (void *, address, size_t, void *), q, at, MIB, stream);
		MUST("cuMemFreeAsync", (address, void *), at, stream);
		MUST("cuEventCreate", (void **, unsigned), &event, i & 1); // odd: cuEventSynchronize sleeps
		MUST("cuEventRecord", (void *, void *), event, stream);
		MUST("cuEventSynchronize", (void *), event);
		EXPECT(!memcmp(p, q, MIB));
		memset(q, 0, MIB);
		MUST("cuEventDestroy_v2", (void *), event);
	}
}

struct properties { int type, handles, where, device; void *windows; char flags[8]; };

static address create(size_t bytes)
{
	struct properties p = {1, POSIX_DESCRIPTOR, 1, 0, NULL, {0}};
	address handle;
	MUST("cuMemCreate", (address *, size_t, void *, address), &handle, bytes, &p, 0);
	return handle;
}

static address map(address handle, size_t bytes)
{
	struct { int where, device, access; } access = {1, 0, 3};
	address at;
	MUST("cuMemAddressReserve", (address *, size_t, size_t, address, address), &at, bytes, 0, 0, 0);
	MUST("cuMemMap", (address, size_t, size_t, address, address), at, bytes, 0, handle, 0);
	MUST("cuMemSetAccess", (address, size_t, void *, size_t), at, bytes, &access, 1);
	return at;
}

static void vmm(void)
{
	size_t n = 4 * MIB, before = free_bytes();
	unsigned char *p = pattern(n, 5), *q = malloc(n);
	address handle = create(n), a = map(handle, n), b = map(handle, n);
	EXPECT(before - free_bytes() >= n);
	write_to(a, p, n);
	read_from(q, b, n);
	EXPECT(!memcmp(p, q, n));
	MUST("cuMemRelease", (address), handle);
	MUST("cuMemUnmap", (address, size_t), a, n);
	MUST("cuMemUnmap", (address, size_t), b, n);
	EXPECT(free_bytes() >= before - 2 * MIB);
}

static void gpus(int wanted)
{
	int count;
	MUST("cuDeviceGetCount", (int *), &count);
	EXPECT(count == wanted);
	unsigned char *p = pattern(MIB, 1), *q = malloc(MIB);
	address first = allocate(MIB);
	write_to(first, p, MIB);
	use_device(count - 1);
	size_t before = free_bytes();
	address last = allocate(64 * MIB);
	EXPECT(before - free_bytes() == 64 * MIB);
	MUST("cuMemcpy", (address, address, size_t), last, first, MIB);
	read_from(q, last, MIB);
	EXPECT(!memcmp(p, q, MIB));
}

static void peers(void)
{
	int reachable = 0;
	unsigned char *p = pattern(MIB, 2), *q = malloc(MIB);
	MUST("cuDeviceCanAccessPeer", (int *, int, int), &reachable, 0, 1);
	EXPECT(reachable == 1);
	void *first = use_device(0);
	address a = allocate(MIB);
	write_to(a, p, MIB);
	void *second = use_device(1);
	address b = allocate(MIB);
	MUST("cuCtxEnablePeerAccess", (void *, unsigned), first, 0);
	MUST("cuMemcpyPeer", (address, void *, address, void *, size_t), b, second, a, first, MIB);
	read_from(q, b, MIB);
	EXPECT(!memcmp(p, q, MIB));
}

static void oom(void)
{
	address list[200], more;
	int n = 0, result = 0;
	EXPECT(CALL("cuMemAlloc_v2", (address *, size_t), &more, 1ul << 40) == OUT_OF_MEMORY);
	while (n < 200 && !(result = CALL("cuMemAlloc_v2", (address *, size_t), &list[n], 1024ul * MIB)))
		n++;
	EXPECT(result == OUT_OF_MEMORY && n > 0);
	EXPECT(CALL("cuMemAllocAsync", (address *, size_t, void *), &more, 1024ul * MIB, NULL) == OUT_OF_MEMORY);
	release(list[0]);
	release(allocate(1024ul * MIB));
}

static void send_descriptor(int to, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	*header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	EXPECT(sendmsg(to, &message, 0) == 1);
}

static int receive_descriptor(int from)
{
	int fd;
	char byte, control[CMSG_SPACE(sizeof fd)];
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	EXPECT(recvmsg(from, &message, 0) == 1 && CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static void export(void)
{
	int sockets[2], fd, status;
	size_t n = 4 * MIB;
	unsigned char *p = pattern(n, 6), *q = malloc(n);
	address handle = create(n), at = map(handle, n);
	write_to(at, p, n);
	MUST("cuMemExportToShareableHandle", (void *, address, int, address), &fd, handle, POSIX_DESCRIPTOR, 0);
	EXPECT(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	pid_t child = fork();
	if (!child) {
		char number[16];
		snprintf(number, sizeof number, "%d", sockets[1]);
		execl("/proc/self/exe", "checks", "import", number, NULL);
		_exit(1);
	}
	send_descriptor(sockets[0], fd);
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	read_from(q, at, n); // the child added 1 to each byte
	for (size_t i = 0; i < n; i++)
		EXPECT(q[i] == (unsigned char)(p[i] + 1));
}

static void import(int from)
{
	size_t n = 4 * MIB, before = free_bytes();
	address handle;
	unsigned char *q = malloc(n);
	long fd = receive_descriptor(from);
	MUST("cuMemImportFromShareableHandle", (address *, void *, int), &handle, (void *)fd, POSIX_DESCRIPTOR);
	address at = map(handle, n);
	EXPECT(before == free_bytes());
	read_from(q, at, n);
	for (size_t i = 0; i < n; i++)
		q[i]++;
	write_to(at, q, n);
	MUST("cuCtxSynchronize", (void), );
}

static void sizes(void)
{
	static const size_t list[] = {1, 65537, 1048576, 1048577, 2097153, 3145729, 104857601};
	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		size_t before = free_bytes();
		address at = allocate(list[i]);
		printf("%zu %zu\n", list[i], before - free_bytes());
		release(at);
		EXPECT(free_bytes() == before);
	}
}

static size_t at_first;
static void held(const char *what) { printf("%s %zu\n", what, (at_first - free_bytes()) / MIB); }

static void rounding(void)
{
	enum { KIB = 1024 };
	address small[4], queued[5];
	static const size_t bytes[] = {1000, 7000000, 20 * MIB, 20 * MIB, 33 * MIB};
	at_first = free_bytes();
	for (int i = 0; i < 4; i++) {
		small[i] = allocate(600 * KIB);
		held("small");
	}
	for (int i = 0; i < 4; i++) {
		release(small[i]);
		held("free");
	}
	for (int i = 0; i < 5; i++) {
		MUST("cuMemAllocAsync", (address *, size_t, void *), &queued[i], bytes[i], NULL);
		printf("at %llu: ", (queued[i] - queued[0]) / KIB);
		held("queued");
	}
	for (int i = 4; i >= 0; i--) {
		MUST("cuMemFreeAsync", (address, void *), queued[i], NULL);
		held("free");
		MUST("cuCtxSynchronize", (void), );
		held("synchronized");
	}
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	if (!cuda) {
		puts(dlerror());
		return 1;
	}
	MUST("cuInit", (unsigned), 0);
	use_device(0);
#define IS(word) (!strcmp(name, word))
	if (IS("copies")) copies();
	else if (IS("managed")) managed();
	else if (IS("pools")) pools();
	else if (IS("vmm")) vmm();
	else if (IS("gpus")) gpus(atoi(argv[2]));
	else if (IS("peers")) peers();
	else if (IS("oom")) oom();
	else if (IS("export")) export();
	else if (IS("import")) import(atoi(argv[2]));
	else if (IS("sizes")) sizes();
	else if (IS("rounding")) rounding();
	else if (IS("node")) EXPECT(!mknod("/dev/nvidia-simdriver-check", S_IFCHR | 0600, makedev(195, 254)));
	else if (IS("free")) printf("%zu\n", free_bytes());
	else fail("no such check", 0);
	return 0;
}
